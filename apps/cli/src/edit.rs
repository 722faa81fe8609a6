//! `edit TYPE NAME`: opens a resource in an editor and applies what was saved.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use contract::{lenient::read_partly, resource::Written};
use resources::format::{self, keys, yaml};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    apply::unknown,
    bounded,
    cell::line,
    client::{ApiClient, ApiResponse},
    document,
    failure::{Failure, Result},
    target::OneResource,
    terminal,
    types::Type,
};

/// Fields that the control plane adds; they are not for editing.
const COMPUTED: [&str; 4] = ["creationTime", "modificationTime", "kri", "status"];
/// Attempts to write while the control plane changes fields that are not for editing.
const ATTEMPTS: usize = 10;
const PRECONDITION_FAILED: u16 = 412;
/// Largest number of changed fields that are listed, and largest length of each value.
const MAX_CHANGES: usize = 20;
const MAX_VALUE: usize = 80;
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
/// resource was changed meanwhile, nothing is written, the fields that changed are listed, and the file is kept.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Edit {
    #[command(flatten)]
    resource: OneResource,
}

impl Edit {
    pub fn run(&self, client: &ApiClient) -> Result<()> {
        let target = self.resource.target(client)?;
        let what = target.describe();
        let item = target.path();
        let kind = &target.kind;
        let stored = read_stored(client, &item, &what)?;
        let stored = stored.ok_or_else(|| Failure::failed(format!("there is no {what}")))?;
        let original = &stored.resource;
        let file = create(&yaml::to_string(original))?;
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
            reason = match parse(kind, original, &written) {
                Ok(edited) if edited == *original => {
                    remove(&file);
                    terminal::talk(&format!("{what} unchanged"));
                    return Ok(());
                }
                Ok(edited) => match apply(client, &item, &what, &stored, &edited) {
                    Ok(EditResult::Done) => {
                        remove(&file);
                        return Ok(());
                    }
                    Ok(EditResult::Refused(reason)) => reason,
                    Err(failure) => return Err(kept(&file, &failure.to_string())),
                },
                Err(reason) => reason,
            };
            write(&file, &format!("{}{written}", comment(&reason)))?;
        }
    }
}

/// A resource as the control plane has it.
struct StoredResource {
    /// Without what is not for editing.
    resource: Value,
    /// `None` where the control plane does not say it, as Kuma's.
    version: Option<String>,
}

/// `None` where there is no such resource.
fn read_stored(client: &ApiClient, item: &str, what: &str) -> Result<Option<StoredResource>> {
    let answer = client.get(item)?;
    if answer.is_missing() {
        return Ok(None);
    }
    let version = answer.version.clone();
    let mut resource = answer.json(&format!("could not read {what}"))?;
    if let Some(fields) = resource.as_object_mut() {
        COMPUTED.iter().for_each(|field| drop(fields.shift_remove(*field)));
    }
    Ok(Some(StoredResource { resource, version }))
}

/// Sends what was edited, to be written over the version that was opened. Another version will do if it differs in nothing
/// that is for editing: control planes write the status of services, for example.
fn send(
    client: &ApiClient,
    item: &str,
    what: &str,
    opened: &StoredResource,
    edited: &Value,
) -> Result<ApiResponse> {
    let mut version = opened.version.clone();
    let mut attempt = 1;
    loop {
        if version.is_none() || attempt > 1 {
            let stored = read_stored(client, item, what)?.ok_or_else(|| {
                let text = "was deleted by another user meanwhile; nothing was written. Apply the file to create it again";
                Failure::failed(format!("{what} {text}"))
            })?;
            check_same(&opened.resource, &stored.resource, what)?;
            version = stored.version;
        }
        let answer = client.put_over(item, edited, version.as_deref())?;
        if answer.status != PRECONDITION_FAILED || attempt == ATTEMPTS {
            return Ok(answer);
        }
        attempt += 1;
    }
}

fn apply(
    client: &ApiClient,
    item: &str,
    what: &str,
    opened: &StoredResource,
    edited: &Value,
) -> Result<EditResult> {
    let answer = send(client, item, what, opened, edited)?;
    if answer.status == 400 {
        return Ok(EditResult::Refused(answer.refusal()));
    }
    let answer = answer.accepted(&format!("could not update {what}"))?;
    let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    read_partly::<Written>(&said).warnings.iter().for_each(|warning| terminal::warn(&line(warning)));
    terminal::talk(&format!("{what} updated"));
    Ok(EditResult::Done)
}

/// Checks that the resource is still the one that was opened in the editor.
fn check_same(original: &Value, stored: &Value, what: &str) -> Result<()> {
    let mut changed = Vec::new();
    differences("", original, stored, &mut changed);
    if changed.is_empty() {
        return Ok(());
    }
    let more = changed.len().saturating_sub(MAX_CHANGES);
    changed.truncate(MAX_CHANGES);
    changed.extend((more > 0).then(|| format!("… and {more} more")));
    let changed: String = changed.iter().map(|field| format!("\n  {field}")).collect();
    Err(Failure::failed(format!(
        "{what} was changed by another user meanwhile; nothing was written. Changed meanwhile:{changed}\nEdit it again \
         and copy what you need from the file"
    )))
}

/// The fields in which two documents differ, each with both values.
fn differences(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                differences(&path, &of(old), &of(new), found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                differences(&format!("{path}[{at}]"), old, new, found);
            }
        }
        (before, after) => found.push(format!("{path}: {} is now {}", shown(before), shown(after))),
    }
}

/// A value in one short line.
fn shown(value: &Value) -> String {
    let text = keys::hidden(&value.to_string()).into_owned();
    match text.char_indices().nth(MAX_VALUE) {
        _ if value.is_null() => "nothing".to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

enum EditResult {
    Done,
    /// The control plane says what is wrong with it.
    Refused(String),
}

/// Fields that tell which resource it is, as they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImmutableFields {
    r#type: Value,
    mesh: Value,
    name: Value,
}

/// Reads what was saved, or says what is wrong with it.
fn parse(kind: &Type, original: &Value, text: &str) -> std::result::Result<Value, String> {
    let mut documents = yaml::documents(text).map_err(|error| error.to_string())?;
    let edited = match (documents.pop(), documents.is_empty()) {
        (Some(document), true) => document.value,
        _ => return Err("expected one YAML document".to_owned()),
    };
    let before: ImmutableFields = document::parts(original);
    let after: ImmutableFields = document::parts(&edited);
    for (field, before, after) in [
        ("type", before.r#type, after.r#type),
        ("mesh", before.mesh, after.mesh),
        ("name", before.name, after.name),
    ] {
        if after != before {
            return Err(format!("{field}: is immutable: expected {before}"));
        }
    }
    // A type that this client does not know is for the control plane to judge.
    if kind.kind.is_some() {
        let parsed = format::parse(edited.clone()).map_err(|error| {
            let slips = unknown::of_refused(&edited).into_iter().map(|slip| format!("{slip}\n"));
            format!("{}{error}", slips.collect::<String>())
        })?;
        let slips = unknown::of_read(&edited, parsed.unknown_fields);
        if !slips.is_empty() {
            return Err(slips.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
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
    bounded::text(path, yaml::MAX_BYTES)
        .map_err(|error| Failure::failed(format!("reading {}: {error}", path.display())))
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
