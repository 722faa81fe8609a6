//! Failures that end the agent, and their exit codes.

use std::fmt;

/// Shown at the end of `kuma-dp --help` and in the reference page.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  stopped as asked, after draining
  1  failed: the control plane refused or could not be reached for too long, or Envoy cannot run
  2  invalid usage or input; nothing was sent to the control plane";

/// A failure, by whose fault it is.
#[derive(Debug)]
pub enum Failure {
    /// The control plane, the network or the machine: the same input may work another time.
    Failed(anyhow::Error),
    /// The input: it has to change before it can work.
    Invalid(anyhow::Error),
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure::Failed(anyhow::Error::msg(message.to_string()))
    }

    pub fn invalid(message: impl fmt::Display) -> Failure {
        Failure::Invalid(anyhow::Error::msg(message.to_string()))
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Invalid(_) => 2,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Failed(error) | Failure::Invalid(error)) = self;
        write!(f, "{error:#}")
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Failed(error)
    }
}
