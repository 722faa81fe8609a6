//! Answers in the types of the contract.

use contract::lenient::{self, Reason};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ApiResponse;
use crate::{
    failure::{Failure, Result},
    terminal,
};

/// An answer as it was sent, which `-o json` and `-o yaml` show with whatever this version does not know, and as the type
/// that everything else reads.
#[derive(Debug)]
pub struct Document<T> {
    pub sent: Value,
    pub read: T,
}

impl ApiResponse {
    /// The body as a type, or the server's refusal as a failure.
    pub fn document<T: DeserializeOwned>(self, attempted: &str) -> Result<Document<T>> {
        let sent = self.json(attempted)?;
        let read = read(&sent, attempted)?;
        Ok(Document { sent, read })
    }
}

/// Reads what was sent; what it should not be is a failure that names the field.
pub fn read<T: DeserializeOwned>(sent: &Value, attempted: &str) -> Result<T> {
    lenient::read(sent).map_err(|unreadable| {
        let reason = match &unreadable.reason {
            Reason::Missing(field) if unreadable.path.is_empty() => format!("the answer has no {field}"),
            _ => format!("the answer cannot be read: {unreadable}"),
        };
        Failure::failed(format!("{attempted}: {}", terminal::one_line(&reason)))
    })
}
