//! Reads the configuration: defaults, then the file, then the environment.

use std::{collections::BTreeSet, fmt, path::Path};

use anyhow::Context;
use settings::{Entry, Leaf, Section, join};

use super::{
    Config, check,
    document::{YamlEntry, YamlNode},
    nearest::nearest,
    without_effect,
};

/// The current directory would be a place that changes with how the program is started.
const NO_WORK_DIR: &str = "general.workDir (KUMA_GENERAL_WORK_DIR): must be set, because HOME is not, and the database, \
                           the TLS certificate and its key would be kept below it; for example /var/lib/kuma";

/// A configuration, and what the operator should know about it.
#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    pub warnings: Vec<String>,
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidConfig(pub Vec<String>);

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid:")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for InvalidConfig {}

/// Reads the file, if there is one, and applies the environment over it.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> anyhow::Result<LoadedConfig> {
    let text = match file {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?,
    };
    let environment: Vec<(String, String)> = environment.into_iter().collect();
    let has_home = environment.iter().any(|(name, value)| name == "HOME" && !value.is_empty());
    let loaded = parse(&text, environment)?;
    if loaded.config.general.work_dir.is_empty() && !has_home {
        return Err(InvalidConfig(vec![NO_WORK_DIR.to_owned()]).into());
    }
    Ok(loaded)
}

/// As [`load`], with the text of the file given.
pub fn parse(
    text: &str,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<LoadedConfig, InvalidConfig> {
    let mut config = Config::default();
    let mut reader = Reader::new(&mut config);
    match serde_saphyr::from_str::<Option<YamlNode>>(text) {
        Ok(None | Some(YamlNode::Value(serde_json::Value::Null))) => {}
        Ok(Some(YamlNode::Mapping(pairs))) => reader.mapping("", pairs),
        Ok(Some(YamlNode::Value(_))) => {
            reader.problems.push("the file must be a mapping of keys to values".to_owned());
        }
        Err(error) => reader.problems.push(format!("the file is not valid YAML: {error}")),
    }
    let mut variables: Vec<(String, String)> =
        environment.into_iter().filter(|(name, _)| name.starts_with("KUMA_")).collect();
    variables.sort();
    for (name, value) in variables {
        reader.variable(&name, &value);
    }
    let mut warnings = reader.without_effect();
    let Reader { mut problems, warnings: others, .. } = reader;
    warnings.extend(others);
    check::check(&mut config, &mut problems, &mut warnings);
    if problems.is_empty() { Ok(LoadedConfig { config, warnings }) } else { Err(InvalidConfig(problems)) }
}

struct Reader<'a> {
    leaves: Vec<Leaf<'a>>,
    sections: BTreeSet<String>,
    problems: Vec<String>,
    warnings: Vec<String>,
    /// Keys and variables that Kuma has, with a value of their own.
    ineffective: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(config: &'a mut Config) -> Self {
        let mut entries = Vec::new();
        config.entries("", &mut entries);
        let mut reader = Reader {
            leaves: Vec::new(),
            sections: BTreeSet::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            ineffective: Vec::new(),
        };
        for entry in entries {
            match entry {
                Entry::Section { path, .. } => _ = reader.sections.insert(path),
                Entry::Setting(leaf) => reader.leaves.push(leaf),
            }
        }
        reader
    }

    fn mapping(&mut self, path: &str, pairs: Vec<YamlEntry>) {
        for pair in pairs {
            let path = join(path, &pair.key);
            self.pair(&path, pair);
        }
    }

    fn pair(&mut self, path: &str, pair: YamlEntry) {
        let place = pair.place;
        if let Some(leaf) = self.leaves.iter_mut().find(|leaf| leaf.path == path) {
            let value = pair.node.into_value();
            if let Err(problem) = leaf.value.set(&value) {
                let shown = if leaf.value.secret() { "*****".to_owned() } else { value.to_string() };
                self.problems.push(format!("{place}: {path}: {shown}: {problem}"));
            }
        } else if self.sections.contains(path) {
            match pair.node {
                YamlNode::Mapping(pairs) => self.mapping(path, pairs),
                YamlNode::Value(serde_json::Value::Null) => {}
                YamlNode::Value(value) => {
                    self.problems
                        .push(format!("{place}: {path}: {value}: expected a mapping of keys to values"));
                }
            }
        } else if without_effect::is_key(path) {
            self.ineffective.extend(without_effect::changed(path, &pair.node.into_value()));
        } else if !path.contains('.') || self.similar(path).is_some() {
            let hint = self.hint(path);
            self.problems.push(format!("{place}: {path}: there is no such key{hint}"));
        } else {
            // Beside Kuma's keys, and like none of them: a key of another version.
            self.ineffective.extend(without_effect::changed(path, &pair.node.into_value()));
        }
    }

    /// One warning for everything that has no effect.
    fn without_effect(&self) -> Vec<String> {
        if self.ineffective.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "not supported yet, and without effect: {}; all other settings are in effect",
            self.ineffective.join(", ")
        )]
    }

    /// The key that was probably meant, of the same depth.
    fn similar(&self, path: &str) -> Option<&str> {
        let depth = path.matches('.').count();
        let supported = self.leaves.iter().map(|leaf| leaf.path.as_str());
        let supported = supported.chain(self.sections.iter().map(String::as_str));
        let known = without_effect::ROWS.iter().map(|(key, ..)| above(key, depth));
        nearest(path, supported.chain(known))
    }

    fn hint(&self, path: &str) -> String {
        match self.similar(path) {
            Some(key) => format!("; did you mean {key}?"),
            None => "; `kuma-cp config defaults` prints every key".to_owned(),
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        let given = name;
        let name = without_effect::usual_name(name);
        if let Some(leaf) = self.leaves.iter_mut().find(|leaf| leaf.env == name) {
            // An empty variable is how many tools spell "not set"; only a text can be empty.
            let text = leaf.value.to_json().is_string();
            let set = if value.is_empty() && !text { Ok(()) } else { leaf.value.set_text(value) };
            if let Err(problem) = set {
                let shown = if leaf.value.secret() { "*****".to_owned() } else { format!("{value:?}") };
                self.problems.push(format!("{given} ({}): {shown}: {problem}", leaf.path));
            }
        } else if without_effect::is_variable(name) {
            if without_effect::is_changed(name, value) {
                self.ineffective.push(given.to_owned());
            }
        } else if !without_effect::is_of_other_program(name) {
            let hint = nearest(name, self.leaves.iter().map(|leaf| leaf.env));
            let hint = hint.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            self.warnings
                .push(format!("{name} is not a variable of the control plane and has no effect{hint}"));
        }
    }
}

/// The part of a key that has at most `depth` dots.
fn above(key: &str, depth: usize) -> &str {
    key.match_indices('.').nth(depth).map_or(key, |(end, _)| &key[..end])
}
