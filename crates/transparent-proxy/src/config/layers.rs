//! Files, environment and flags, one over the other.

use serde_json::{Map, Value};

use super::{Config, Variable};

/// Reason that the layers do not make a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerError {
    #[error("{source_name} cannot be read as YAML or JSON: {reason}")]
    Unreadable { source_name: String, reason: String },
    #[error("{source_name} must contain a map of settings, like `redirect: {{dns: {{enabled: true}}}}`")]
    NotAMap { source_name: String },
    #[error("environment variable {variable}: {reason}")]
    Variable { variable: String, reason: String },
    #[error("{field}: {reason}")]
    Field { field: String, reason: String },
}

/// Settings of all layers so far. A later layer wins over an earlier one, field by field; a list replaces a
/// list.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    value: Map<String, Value>,
}

impl Layers {
    /// Adds a file (or what stands for one) of YAML or JSON. An empty one says nothing.
    pub fn text(&mut self, source_name: &str, text: &str) -> Result<(), LayerError> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let value: Value = serde_saphyr::from_str(text).map_err(|error| LayerError::Unreadable {
            source_name: source_name.into(),
            reason: error.to_string(),
        })?;
        match value {
            Value::Object(map) => merge(&mut self.value, map),
            Value::Null => {}
            _ => return Err(LayerError::NotAMap { source_name: source_name.into() }),
        }
        Ok(())
    }

    /// Adds the variables `KUMA_TRANSPARENT_PROXY_…` that have a text.
    pub fn environment(&mut self, read: impl Fn(&str) -> Option<String>) -> Result<(), LayerError> {
        for variable in Variable::all() {
            let name = variable.full_name();
            let Some(text) = read(&name).filter(|text| !text.trim().is_empty()) else { continue };
            let value =
                variable.read(&text).map_err(|reason| LayerError::Variable { variable: name, reason })?;
            self.set(variable.path, value);
        }
        Ok(())
    }

    /// Sets one field, named by its path: `redirect.dns.port`.
    pub fn set(&mut self, path: &str, value: Value) {
        let layer =
            path.rsplit('.').fold(value, |inner, key| Value::Object(Map::from_iter([(key.into(), inner)])));
        if let Value::Object(layer) = layer {
            merge(&mut self.value, layer);
        }
    }

    /// Sets one field to a text, read as the variable of the field is.
    pub fn set_text(&mut self, path: &str, text: &str) -> Result<(), LayerError> {
        let variable = Variable::all().iter().find(|variable| variable.path == path);
        let value = match variable {
            Some(variable) => {
                variable.read(text).map_err(|reason| LayerError::Field { field: path.into(), reason })?
            }
            None => text.into(),
        };
        self.set(path, value);
        Ok(())
    }

    /// The configuration, with defaults for what was not said.
    pub fn config(self) -> Result<Config, LayerError> {
        serde_path_to_error::deserialize(Value::Object(self.value)).map_err(|error| LayerError::Field {
            field: error.path().to_string(),
            reason: error.inner().to_string(),
        })
    }
}

fn merge(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            // A key without a value says nothing.
            (_, Value::Null) => {}
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}
