//! The Kubernetes form: `apiVersion`, `kind`, `metadata`, `spec`.

use serde_json::{Map, Value};

use super::{Error, Parsed};

pub fn parse(_fields: Map<String, Value>) -> Result<Parsed, Error> {
    Err(Error::Missing("kind"))
}
