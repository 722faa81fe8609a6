//! `edit TYPE NAME`: opens a resource in an editor and applies what was saved.

use std::{
    env, fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use resources::format::{self, yaml};
use serde_json::Value;

use crate::{
    client::Client,
    failure::{Failure, Result},
    target::OneResource,
    terminal,
    types::Type,
};

/// What the control plane adds; it is not for editing.
const COMPUTED: [&str; 4] = ["creationTime", "modificationTime", "kri", "status"];
/// Lines at the beginning of the file that begin with this are ours.
const COMMENT: &str = "# ";

const EXAMPLES: &str = "\
Examples:
  kumactl edit meshtimeout slow
  kumactl edit mesh default
  KUMACTL_EDITOR='code --wait' kumactl edit meshhttproute api -m shop

The editor is KUMACTL_EDITOR, else EDITOR, else vi. An empty file, or one that is left
unchanged after an error, ends the command without a write.";

/// Edit a resource in an editor
///
/// The saved file is checked and applied. An invalid one is opened again with the reason at the top. If the
/// resource changed meanwhile, nothing is written and the file is kept. The resource is compared
/// right before the write; the REST API has no conditional write, so a change in that very
/// moment is overwritten.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Edit {
    #[command(flatten)]
    resource: OneResource,
}

impl Edit {
    pub fn run(&self, client: &Client) -> Result<()> {
        let target = self.resource.target(client)?;
        let (what, item) = (target.describe(), target.path());
        let kind = &target.kind;
        let original = self.read(client, &item, &what)?;
        let file = create(&yaml::to_string(&original))?;
        let mut reason = String::new();
        loop {
            let before = read(&file)?;
            open(&file)?;
            let text = read(&file)?;
            let written = uncommented(&text);
            if written.trim().is_empty() {
                remove(&file);
                return Err(Failure::invalid(format!("{what} was not changed: the file is empty")));
            }
            if !reason.is_empty() && text == before {
                return Err(kept(&file, &format!("{what} was not changed: {reason}")));
            }
            reason = match parse(kind, &original, &written) {
                Ok(edited) if edited == original => {
                    remove(&file);
                    terminal::talk(&format!("{what} unchanged"));
                    return Ok(());
                }
                Ok(edited) => match self.apply(client, &item, &original, &edited, &what) {
                    Ok(Applied::Done) => {
                        remove(&file);
                        return Ok(());
                    }
                    Ok(Applied::Refused(reason)) => reason,
                    Err(failure) => return Err(kept(&file, &failure.to_string())),
                },
                Err(reason) => reason,
            };
            write(&file, &format!("{}{written}", comment(&reason)))?;
        }
    }

    /// The resource without what is not for editing.
    fn read(&self, client: &Client, item: &str, what: &str) -> Result<Value> {
        let answer = client.get(item)?;
        if answer.is_missing() {
            return Err(Failure::failed(format!("there is no {what}")));
        }
        let mut found = answer.json(&format!("could not read {what}"))?;
        if let Some(fields) = found.as_object_mut() {
            COMPUTED.iter().for_each(|field| drop(fields.shift_remove(*field)));
        }
        Ok(found)
    }

    fn apply(
        &self,
        client: &Client,
        item: &str,
        original: &Value,
        edited: &Value,
        what: &str,
    ) -> Result<Applied> {
        if self.read(client, item, what)? != *original {
            return Err(Failure::failed(format!(
                "{what} was changed by another user meanwhile; nothing was written. Edit it again and copy \
                what you need from the file"
            )));
        }
        let answer = client.put(item, edited)?;
        if answer.status == 400 {
            return Ok(Applied::Refused(answer.refusal()));
        }
        let answer = answer.accepted(&format!("could not update {what}"))?;
        let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        for warning in said["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            terminal::warn(warning);
        }
        terminal::talk(&format!("{what} updated"));
        Ok(Applied::Done)
    }
}

enum Applied {
    Done,
    /// The control plane says what is wrong with it.
    Refused(String),
}

/// Reads what was saved, or says what is wrong with it.
fn parse(kind: &Type, original: &Value, text: &str) -> std::result::Result<Value, String> {
    let mut documents = yaml::documents(text).map_err(|error| error.to_string())?;
    let edited = match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => document.value,
        _ => return Err("expected one YAML document".to_owned()),
    };
    for field in ["type", "mesh", "name"] {
        if edited[field] != original[field] {
            return Err(format!("{field}: is immutable: expected {}", original[field]));
        }
    }
    // A type that this client does not know is for the control plane to judge.
    if kind.kind.is_some() {
        let parsed = format::parse(edited.clone()).map_err(|error| error.to_string())?;
        if let Some(field) = parsed.unknown_fields.first() {
            return Err(format!("{field}: unknown field"));
        }
        let found = parsed.draft.validate().into_vec();
        if !found.is_empty() {
            return Err(found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
    }
    Ok(edited)
}

fn comment(reason: &str) -> String {
    let lines = reason.lines().map(|line| format!("{COMMENT}{line}\n")).collect::<String>();
    format!(
        "{COMMENT}This was not applied:\n{lines}{COMMENT}Correct it and save, or save it unchanged to give up.\n"
    )
}

/// The text without the lines that [`comment`] put before it.
fn uncommented(text: &str) -> String {
    let ours = text.lines().take_while(|line| line.starts_with(COMMENT.trim_end()));
    let length: usize = ours.map(|line| line.len() + 1).sum();
    text.get(length..).unwrap_or_default().to_owned()
}

/// A file that only its owner can read and that was not there before: the folder may be everyone's.
fn create(text: &str) -> Result<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let path = env::temp_dir().join(format!("kumactl-edit-{}-{since}.yaml", std::process::id()));
    let created = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    created.map_err(|error| Failure::failed(format!("creating {}: {error}", path.display())))?;
    Ok(path)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Failure::failed(format!("reading {}: {error}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::failed(format!("writing {}: {error}", path.display())))
}

fn remove(path: &Path) {
    // It is in a folder that is emptied anyway.
    let _ = fs::remove_file(path);
}

fn kept(path: &Path, reason: &str) -> Failure {
    Failure::failed(format!("{reason}\nyour version is kept in {}", path.display()))
}

fn open(path: &Path) -> Result<()> {
    let chosen =
        ["KUMACTL_EDITOR", "EDITOR"].iter().find_map(|name| env::var(name).ok().filter(|v| !v.is_empty()));
    let editor = chosen.unwrap_or_else(|| "vi".to_owned());
    // The value may have arguments, as in `code --wait`; the path is an argument of its own.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(kept(path, &format!("the editor {editor:?} ended with {status}; set KUMACTL_EDITOR")))
        }
        Err(error) => {
            Err(kept(path, &format!("could not run the editor {editor:?}: {error}; set KUMACTL_EDITOR")))
        }
    }
}
