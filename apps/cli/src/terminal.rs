//! The two streams: data on stdout, talk on stderr.

use std::io::{self, IsTerminal, Write};

/// Writes data. A closed pipe is an error here and success for `main`.
pub fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Tells the user something that is not data. Nobody listening is no reason to stop.
pub fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub fn warn(text: &str) {
    talk(&format!("warning: {text}"));
}

/// Writes a token: with a closing line for people, bare for files, as other tools expect it.
pub fn token(text: &str) -> io::Result<()> {
    let end = if io::stdout().is_terminal() { "\n" } else { "" };
    data(&format!("{text}{end}"))
}

pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}
