//! Limits the files that a bootstrap configuration may name. Envoy removes the file at the path of a pipe
//! before it listens there, and often runs with more rights than the control plane should have on this
//! machine.

use std::path::{Component, Path, PathBuf};

use anyhow::anyhow;
use serde_json::Value;

/// Envoy may write its logs here.
const STREAMS: [&str; 3] = ["/dev/null", "/dev/stdout", "/dev/stderr"];

/// Envoy's use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Removes it and makes a socket, or connects to one.
    Socket,
    Write,
    Read,
}

/// The files that Envoy may touch.
#[derive(Debug)]
pub struct Allowed<'a> {
    pub work_dir: &'a Path,
    /// Files outside that the user named, for reading only.
    pub readable: Vec<PathBuf>,
}

impl Allowed<'_> {
    /// Refuses a configuration that names another file, and says where.
    pub fn check(&self, bootstrap: &Value) -> anyhow::Result<()> {
        let mut found = Vec::new();
        // A node's metadata repeats paths for the control plane; Envoy opens none of them.
        for (key, value) in bootstrap.as_object().into_iter().flatten().filter(|(key, _)| *key != "node") {
            collect(value, key, key, &mut found);
        }
        found.into_iter().try_for_each(|(place, used, path)| self.check_one(&place, used, Path::new(path)))
    }

    fn check_one(&self, place: &str, used: Use, path: &Path) -> anyhow::Result<()> {
        let named = match used {
            Use::Write => STREAMS.iter().any(|stream| Path::new(stream) == path),
            Use::Read => self.readable.iter().any(|file| file == path),
            Use::Socket => false,
        };
        if named || self.is_inside(path) {
            return Ok(());
        }
        let would = match used {
            Use::Socket => "remove what is there or connect to it",
            Use::Write => "write there",
            Use::Read => "read it",
        };
        Err(anyhow!(
            "{place} is {path:?}, which is not inside the work directory {}; Envoy would {would}\n\
             hint: check that --cp-address is your control plane; a path that the control plane cut at 98 bytes \
             needs a shorter --work-dir",
            self.work_dir.display()
        ))
    }

    /// True if nothing on the way to the file, and not the file itself, leads out of the work directory.
    fn is_inside(&self, path: &Path) -> bool {
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let real = |path: &Path| path.canonicalize().ok();
        let inside = || Some(real(path.parent()?)?.starts_with(real(self.work_dir)?));
        plain && path.is_absolute() && !path.is_symlink() && inside().unwrap_or(false)
    }
}

/// Every file that is named below `value`, which stands under `key` at `place`.
fn collect<'a>(value: &'a Value, key: &str, place: &str, found: &mut Vec<(String, Use, &'a str)>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, key, &format!("{place}[{index}]"), found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let place = format!("{place}.{name}");
                match (value, used(key, name)) {
                    (Value::String(path), Some(used)) if !path.is_empty() => found.push((place, used, path)),
                    _ => collect(value, name, &place, found),
                }
            }
        }
        _ => {}
    }
}

/// Envoy's use of the file that the field `name` of the object under `key` names, if it names one.
fn used(key: &str, name: &str) -> Option<Use> {
    match name {
        "path" => match key {
            "pipe" => Some(Use::Socket),
            // Among extensions, those that have a path write there: access logs do.
            "typed_config" | "typedConfig" | "value" => Some(Use::Write),
            "watched_directory" | "watchedDirectory" => Some(Use::Read),
            _ => is_source(key).then_some(Use::Read),
        },
        "access_log_path" | "accessLogPath" | "profile_path" | "profilePath" | "path_prefix"
        | "pathPrefix" => Some(Use::Write),
        "filename" | "symlink_root" | "symlinkRoot" => Some(Use::Read),
        _ => None,
    }
}

/// True if an object under this key says where configuration comes from, such as `cds_config`.
fn is_source(key: &str) -> bool {
    ["_config", "Config", "config_source", "onfigSource"].iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(bootstrap: Value, refused: Option<&str>) {
        let work = tempfile::tempdir().unwrap();
        let work_dir = work.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", work_dir.join("link")).unwrap();
        let text = bootstrap.to_string().replace("WORK", work_dir.to_str().unwrap());
        let allowed = Allowed { work_dir: &work_dir, readable: vec!["/etc/ca.pem".into()] };
        let said = allowed.check(&serde_json::from_str(&text).unwrap()).map_err(|error| error.to_string());
        match refused {
            None => assert_eq!(said, Ok(()), "{text}"),
            Some(place) => {
                let said = said.expect_err(&text);
                assert!(said.starts_with(place) && said.contains("not inside the work directory"), "{said}");
            }
        }
    }

    #[test]
    fn sockets_are_made_in_the_work_directory_only() {
        let admin = |path: &str| json!({"admin": {"address": {"pipe": {"path": path}}}});
        let place = Some("admin.address.pipe.path");
        check(admin("WORK/a.sock"), None);
        check(admin("/etc/passwd"), place);
        check(admin("WORK/../a.sock"), place);
        check(admin("WORK"), place);
        check(admin("WORK/link/passwd"), place);
        check(admin("WORK/link"), place);
        check(admin("WORK/none/a.sock"), place);
        check(admin("a.sock"), place);
        check(admin("@abstract"), place);
        let cluster =
            json!({"staticResources": {"clusters": [{"endpoint": {"address": {"pipe": {"path": "/x"}}}}]}});
        check(cluster, Some("staticResources.clusters[0].endpoint.address.pipe.path"));
    }

    #[test]
    fn logs_are_written_in_the_work_directory_or_to_the_streams() {
        let log = |path: &str| json!({"admin": {"accessLog": [{"typedConfig": {"@type": "x.FileAccessLog", "path": path}}]}});
        check(log("/dev/null"), None);
        check(log("WORK/admin.log"), None);
        check(log("/var/log/admin.log"), Some("admin.accessLog[0].typedConfig.path"));
        let wrapped = json!({"admin": {"access_log": [{"typed_config": {"value": {"path": "/x"}}}]}});
        check(wrapped, Some("admin.access_log[0].typed_config.value.path"));
        check(json!({"admin": {"profile_path": "/etc/cron.d/x"}}), Some("admin.profile_path"));
    }

    #[test]
    fn files_that_the_user_named_can_be_read_and_nothing_else() {
        let secret =
            |path: &str| json!({"static_resources": {"secrets": [{"trusted_ca": {"filename": path}}]}});
        check(secret("/etc/ca.pem"), None);
        check(secret("WORK/ca.pem"), None);
        check(secret("/etc/shadow"), Some("static_resources.secrets[0].trusted_ca.filename"));
        check(
            json!({"dynamic_resources": {"cds_config": {"path": "/x"}}}),
            Some("dynamic_resources.cds_config.path"),
        );
        let sourced = json!({"dynamicResources": {"cdsConfig": {"pathConfigSource": {"path": "/x"}}}});
        check(sourced, Some("dynamicResources.cdsConfig.pathConfigSource.path"));
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        check(json!({"node": {"metadata": {"filename": "/x", "pipe": {"path": "/x"}}}}), None);
        let route =
            json!({"match": {"path": "/ready"}, "direct_response": {"body": {"inline_string": "/x"}}});
        check(json!({"static_resources": {"listeners": [{"typed_config": {"routes": [route]}}]}}), None);
        check(json!({"health_checks": [{"http_health_check": {"path": "/ready"}}]}), None);
    }
}
