//! The examples in the documents are run, and print what the documents say.
//!
//! A `console` block holds commands (`$ …`) and what they print; `…` stands for any text within a
//! line, and a line of nothing but `…` for any lines. A command that prints a line with `error:` at its
//! beginning fails, every other one succeeds. A command that ends with `&` runs until the test ends. A `yaml` block
//! whose first line is `# NAME.yaml` is the content of that file.

use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Mutex,
};

use e2e::{ControlPlane, Profile, Setup, eventually, program};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
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

    /// True for a command that starts a program that goes on running.
    fn is_background(&self) -> bool {
        self.command.ends_with('&')
    }

    /// True for a command that changes nothing when run again. The mesh may need a moment until what is shown
    /// is true.
    fn only_reads(&self) -> bool {
        let words: Vec<&str> = self.command.split(' ').take(2).collect();
        let reads = ["access", "analyze", "events", "get", "inspect", "proxy"];
        words[0] == "curl" || words[0] == "kumactl" && reads.contains(&words[1])
    }

    fn is_satisfied_by(&self, output: &Output) -> bool {
        let printed = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = printed.lines().collect();
        let code = output.status.code().unwrap_or(-1);
        let as_expected = match self.command.strip_prefix("kumactl ").and_then(|rest| rest.split(' ').next())
        {
            // Their exit codes are part of the answer: there is a difference, it is not allowed.
            Some("diff") => [0, 1].contains(&code),
            Some("access") => [0, 3].contains(&code),
            _ => output.status.success() != self.fails(),
        };
        as_expected && matches(&self.expected, &lines)
    }
}

/// The files that a text shows, by name.
fn files(text: &str) -> Vec<(String, String)> {
    let blocks = text.split("```yaml\n# ").skip(1);
    let file = |block: &str| {
        let (name, rest) = block.split_once('\n')?;
        let content = rest.split("```").next()?;
        name.ends_with(".yaml").then(|| (name.to_owned(), content.to_owned()))
    };
    blocks.filter_map(file).collect()
}

/// True if the lines printed are the lines expected.
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

/// Shell for the commands of a document: in a folder of its own that has the examples of the project, with a home of
/// its own.
pub struct Shell {
    home: TempDir,
    folder: TempDir,
    variables: Vec<(String, String)>,
    /// The process groups of programs that go on running.
    running: Mutex<Vec<Pid>>,
}

impl Shell {
    pub fn new(variables: &[(&str, &str)]) -> Shell {
        let programs = program("kumactl", Profile::Same).unwrap();
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let own = [("PATH", path.as_str())];
        let all = own.iter().chain(variables);
        let variables = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let home = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        symlink(root().join("examples"), folder.path().join("examples")).unwrap();
        Shell { home, folder, variables, running: Mutex::default() }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Another variable for all commands from now on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    fn command(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{{\n{command}\n}} 2>&1")])
            .current_dir(self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("HOME", self.home.path())
            .stdin(Stdio::null());
        shell
    }

    fn output(&self, command: &str) -> Output {
        self.command(command).output().unwrap()
    }

    pub fn succeeds(&self, command: &str) -> bool {
        self.output(command).status.success()
    }

    /// Starts a program that runs until the test ends.
    fn start(&self, command: &str) -> Output {
        let shell = self.command(command).process_group(0).stdout(Stdio::null()).spawn().unwrap();
        self.running.lock().unwrap().push(Pid::from_raw(i32::try_from(shell.id()).unwrap()));
        shell.wait_with_output().unwrap()
    }

    fn run(&self, example: &Example) -> Output {
        if example.is_background() {
            return self.start(&example.command);
        }
        let mut output = self.output(&example.command);
        if example.only_reads() {
            let retried = eventually(&example.command, || {
                let satisfied = example.is_satisfied_by(&output);
                if !satisfied {
                    output = self.output(&example.command);
                }
                satisfied
            });
            // The caller compares the last output and says what is wrong with it.
            drop(retried);
        }
        output
    }

    /// Writes the files that a text shows, runs its examples and compares what they print.
    pub fn run_examples(&self, name: &str, text: &str) {
        for (file, content) in files(text) {
            fs::write(self.folder.path().join(file), content).unwrap();
        }
        let examples = examples(text);
        assert!(!examples.is_empty(), "{name} has no examples");
        for example in examples {
            let output = self.run(&example);
            assert!(
                example.is_satisfied_by(&output),
                "{name}:{}: $ {}\nexpected:\n{}\nprinted, with {}:\n{}\n{}",
                example.line,
                example.command,
                example.expected.join("\n"),
                output.status,
                String::from_utf8_lossy(&output.stdout),
                self.logs()
            );
        }
    }

    /// Output of the programs that go on running.
    fn logs(&self) -> String {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let logs = entries.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| format!("{}:\n{}", path.display(), fs::read_to_string(&path).unwrap())).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for group in self.running.lock().unwrap().drain(..) {
            // Fails when the program has ended already, which is what is wanted.
            let _ = killpg(group, Signal::SIGKILL);
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

/// A control plane that is found as the documents find theirs.
pub fn start_control_plane(shell: &Shell) -> ControlPlane {
    let work_dir = shell.home().join(".kuma");
    fs::create_dir(&work_dir).unwrap();
    let control_plane = ControlPlane::start(&work_dir, Setup::default()).unwrap();
    let address = control_plane.address();
    let add = ["config", "control-planes", "add", "--name", "document", "--address", &address];
    assert!(e2e::kumactl(shell.home(), &add).unwrap().status.success());
    control_plane
}

fn check_document(path: &Path) {
    let shell = Shell::new(&[]);
    let _control_plane = start_control_plane(&shell);
    shell.run_examples(&path.display().to_string(), &fs::read_to_string(path).unwrap());
}

#[test]
fn the_readme_shows_what_happens() {
    check_document(&root().join("README.md"));
}

#[test]
fn the_checks_before_a_migration_of_names_work() {
    check_document(&root().join("docs/guide/naming-migration.md"));
}

#[test]
fn the_page_about_events_shows_what_happened() {
    check_document(&root().join("docs/guide/events.md"));
}

#[test]
fn an_example_that_prints_something_else_is_noticed() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a…c\n…\nz"), &["abc", "1", "2", "z"]));
    assert!(!matches(&lines("a…c"), &["abd"]));
    assert!(!matches(&lines("…\nz"), &["y"]));
    assert!(!matches(&lines("a"), &["a", "b"]));
}
