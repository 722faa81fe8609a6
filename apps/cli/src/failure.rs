//! Failures of commands, and their exit codes.

use std::{fmt, io};

pub const OK: u8 = 0;
pub const FAILED: u8 = 1;
pub const DIFFERS: u8 = 1;
pub const INVALID: u8 = 2;
pub const NO: u8 = 3;
pub const PARTLY: u8 = 4;

/// Shown at the end of `kumactl --help` and in the reference page.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: refused by the control plane, or the control plane could not be reached
  2  invalid usage or input; nothing was sent to the control plane
  3  the answer is no: access is denied, or a proxy rejected something
  4  the answer is partly: access is mixed, or a proxy is behind or offline
diff differs: 1 means that something would change, and 2 that it failed.";

/// The answer of a command that succeeded. Scripts read it from the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandResult {
    /// Done, or the answer is yes.
    Done,
    /// The answer is no.
    No,
    /// The answer is neither yes nor no.
    Partly,
    /// Something would be different.
    Differs,
}

impl CommandResult {
    pub fn exit_code(self) -> u8 {
        match self {
            CommandResult::Done => OK,
            CommandResult::No => NO,
            CommandResult::Partly => PARTLY,
            CommandResult::Differs => DIFFERS,
        }
    }
}

/// A failure of a command, by its cause.
#[derive(Debug)]
pub enum Failure {
    /// The server, the network or the machine: the same input may work another time.
    Failed(anyhow::Error),
    /// The input: it has to change before it can work.
    Invalid(anyhow::Error),
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn invalid(message: impl fmt::Display) -> Failure {
        Failure::Invalid(anyhow::Error::msg(message.to_string()))
    }

    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure::Failed(anyhow::Error::msg(message.to_string()))
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Failed(_) => FAILED,
            Failure::Invalid(_) => INVALID,
        }
    }

    /// True if the reader of our output closed it, as in `kumactl get meshes | head -1`.
    pub fn is_closed_pipe(&self) -> bool {
        let (Failure::Failed(error) | Failure::Invalid(error)) = self;
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
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

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Failed(error.into())
    }
}
