//! Command line and environment of a process, as a file, so that a later command can start it again.

use std::{fs, path::Path, process::Command};

use anyhow::Context;
use serde_json::{Value, json};

/// Writes `<name>.command`. Tokens are in files of their own and not in here.
pub fn write_down(home: &Path, name: &str, command: &Command) -> anyhow::Result<()> {
    let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
    let environment: serde_json::Map<String, Value> =
        command.get_envs().map(|(name, value)| (text(name), json!(value.map(text)))).collect();
    let written = json!({
        "program": text(command.get_program()),
        "arguments": command.get_args().map(text).collect::<Vec<_>>(),
        "environment": environment,
    });
    let file = home.join(format!("{name}.command"));
    fs::write(&file, format!("{written:#}\n")).with_context(|| format!("writing {}", file.display()))
}

/// The command of an earlier start. A variable without a value is one that must not be there.
pub fn command(home: &Path, name: &str) -> anyhow::Result<Command> {
    let file = home.join(format!("{name}.command"));
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let written: Value =
        serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))?;
    let program = written["program"].as_str().with_context(|| format!("no program in {}", file.display()))?;
    let mut command = Command::new(program);
    command.args(written["arguments"].as_array().into_iter().flatten().filter_map(Value::as_str));
    for (name, value) in written["environment"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Ok(command)
}
