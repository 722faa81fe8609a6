//! `completion SHELL`.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::{cli, failure::Result, terminal};

/// Print the completion script of a shell
///
/// For bash: source <(kumactl completion bash)
#[derive(Debug, Args)]
pub struct Completion {
    /// Shell to complete in
    shell: Supported,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Supported {
    Bash,
    Zsh,
    Fish,
}

impl Completion {
    pub fn run(&self) -> Result<()> {
        let shell = match self.shell {
            Supported::Bash => Shell::Bash,
            Supported::Zsh => Shell::Zsh,
            Supported::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut cli::command(), "kumactl", &mut script);
        Ok(terminal::data(&String::from_utf8_lossy(&script))?)
    }
}
