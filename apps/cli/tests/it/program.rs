//! The binary, run with a home of its own.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::server::Server;

/// Exit code and output of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn failed(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:#?}");
        assert_eq!(self.out, "", "a failure is talk, not data");
        self
    }

    #[track_caller]
    pub fn says(self, expect: &str) -> Ran {
        assert!(self.err.contains(expect), "expected {expect:?} in {self:#?}");
        self
    }

    /// Succeeded with an answer other than yes.
    #[track_caller]
    pub fn answered(self, code: i32) -> Ran {
        assert_eq!((self.code, self.err.as_str()), (code, ""), "{self:#?}");
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    pub fn lines(&self) -> Vec<&str> {
        self.out.lines().collect()
    }
}

/// The cells of a line of a table.
pub fn cells(line: &str) -> Vec<&str> {
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// A home directory and, if a test has one, the control plane its configuration points to.
pub struct Program {
    pub home: tempfile::TempDir,
}

impl Program {
    pub fn new() -> Program {
        Program { home: tempfile::tempdir().unwrap() }
    }

    pub fn of(server: &Server) -> Program {
        Program::at(&server.url)
    }

    /// With a configuration that points to a control plane.
    pub fn at(url: &str) -> Program {
        let program = Program::new();
        let config = format!(
            "contexts:\n- controlPlane: test\n  name: test\ncontrolPlanes:\n- coordinates:\n    apiServer:\n      \
             url: {url}\n  name: test\ncurrentContext: test\n"
        );
        fs::create_dir(program.home.path().join(".kumactl")).unwrap();
        fs::write(program.config(), config).unwrap();
        program
    }

    pub fn config(&self) -> PathBuf {
        self.home.path().join(".kumactl/config")
    }

    /// Writes a file into the home and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumactl"));
        command.args(arguments).current_dir(self.home.path()).env("HOME", self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments).spawn().unwrap())
    }

    pub fn run_with_stdin(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        finish(child)
    }
}

fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
