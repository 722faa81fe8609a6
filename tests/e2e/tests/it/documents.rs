//! The examples in the documents are run, and print what the documents say.
//!
//! A `console` block holds commands (`$ …`) and what they print; `…` stands for any text within a
//! line, and a line of nothing but `…` for any lines. A command that prints a line with `error:` at its
//! beginning fails, every other one succeeds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use e2e::{ControlPlane, Profile, Setup, program};
use tempfile::TempDir;

struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => {
                    found.push(Example {
                        line: number + 1,
                        command: command.to_owned(),
                        expected: Vec::new(),
                    });
                }
                None => found.last_mut().expect("output before a command").expected.push(line.to_owned()),
            },
        }
    }
    found
}

impl Example {
    fn fails(&self) -> bool {
        self.expected.iter().any(|line| line.starts_with("error:"))
    }
}

/// Whether the lines printed are the lines expected.
fn matches(expected: &[String], printed: &[&str]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && matches(rest, others)),
    }
}

fn line_matches(expected: &str, printed: &str) -> bool {
    let mut parts = expected.trim_end().split('…');
    let Some(mut rest) = parts.next().and_then(|start| printed.trim_end().strip_prefix(start)) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        let Some(at) = (if part.is_empty() { Some(rest.len()) } else { rest.rfind(part) }) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        open = part.is_empty();
    }
    open || rest.is_empty()
}

/// Where the commands of a document are run: at the root of the project, with a home of their own.
pub struct Shell {
    home: TempDir,
    variables: Vec<(String, String)>,
}

impl Shell {
    pub fn new(variables: &[(&str, &str)]) -> Shell {
        let programs = program("kumactl", Profile::Same).unwrap();
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let own = [("PATH", path.as_str())];
        let all = own.iter().chain(variables);
        let variables = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Shell { home: tempfile::tempdir().unwrap(), variables }
    }

    fn output(&self, command: &str) -> std::process::Output {
        Command::new("sh")
            .args(["-c", &format!("{{ {command}; }} 2>&1")])
            .current_dir(root())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("HOME", self.home.path())
            .output()
            .unwrap()
    }

    pub fn succeeds(&self, command: &str) -> bool {
        self.output(command).status.success()
    }

    /// Runs the examples of a text and compares what they print.
    pub fn run_examples(&self, name: &str, text: &str) {
        let examples = examples(text);
        assert!(!examples.is_empty(), "{name} has no examples");
        for example in examples {
            let output = self.output(&example.command);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines: Vec<&str> = printed.lines().collect();
            assert!(
                matches(&example.expected, &lines) && output.status.success() != example.fails(),
                "{name}:{}: $ {}\nexpected:\n{}\nprinted, with {}:\n{printed}",
                example.line,
                example.command,
                example.expected.join("\n"),
                output.status
            );
        }
    }
}

/// Asserts that a document says of a command what that printed.
pub fn check_output(document: &str, command: &str, printed: &str) {
    let examples = examples(document);
    let example = examples.iter().find(|example| example.command == command);
    let example = example.unwrap_or_else(|| panic!("the document has no `{command}`"));
    let lines: Vec<&str> = printed.lines().collect();
    assert!(
        matches(&example.expected, &lines),
        "line {}: $ {command}\nexpected:\n{}\nprinted:\n{printed}",
        example.line,
        example.expected.join("\n")
    );
}

fn check_document(path: &Path) {
    let work_dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(work_dir.path(), Setup::default()).unwrap();
    let shell = Shell::new(&[]);
    let address = control_plane.address();
    let add = ["config", "control-planes", "add", "--name", "document", "--address", &address];
    assert!(e2e::kumactl(shell.home.path(), &add).unwrap().status.success());
    shell.run_examples(&path.display().to_string(), &fs::read_to_string(path).unwrap());
}

#[test]
fn the_readme_shows_what_happens() {
    check_document(&root().join("README.md"));
}

#[test]
fn the_first_steps_work() {
    check_document(&root().join("docs/guide/first-steps.md"));
}

#[test]
fn the_checks_before_a_migration_of_names_work() {
    check_document(&root().join("docs/guide/naming-migration.md"));
}

#[test]
fn an_example_that_prints_something_else_is_noticed() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a…c\n…\nz"), &["abc", "1", "2", "z"]));
    assert!(!matches(&lines("a…c"), &["abd"]));
    assert!(!matches(&lines("…\nz"), &["y"]));
    assert!(!matches(&lines("a"), &["a", "b"]));
}
