//! The two streams: data on stdout, messages on stderr.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

use resources::format::keys;

/// Writes data. A closed pipe is an error here and success for `main`.
pub fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(printable(text).as_bytes())?;
    out.flush()
}

/// Tells the user something that is not data, and no private key: messages quote input and answers. A closed stderr is
/// no reason to stop.
pub fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(&keys::hidden(text)));
}

/// The text without characters that command a terminal, which may come from the network. They are
/// spelled as JSON and YAML spell them in quotes, so that data stays what it is.
fn printable(text: &str) -> Cow<'_, str> {
    if is_printable(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match commands(letter) {
            // Writing to a string cannot fail.
            true => drop(write!(shown, "\\u{:04x}", u32::from(letter))),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// True if the text can be shown as it is.
pub fn is_printable(text: &str) -> bool {
    !text.contains(commands)
}

fn commands(letter: char) -> bool {
    let reverses = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(letter, '\u{2028}' | '\u{2029}');
    reverses || breaks || letter.is_control() && letter != '\n' && letter != '\t'
}

/// The text in one line, as it can stand in a cell or in a sentence: a name with a line break must not look like a line
/// of our own.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n").replace('\t', "\\t")
}

pub fn warn(text: &str) {
    talk(&format!("warning: {text}"));
}

/// Writes a token: with a closing line for people, bare for files, as other tools expect it.
pub fn token(text: &str) -> io::Result<()> {
    let end = if io::stdout().is_terminal() { "\n" } else { "" };
    data(&format!("{text}{end}"))
}

pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a page in the place of everything on the screen.
pub fn screen(text: &str) -> io::Result<()> {
    io::stdout().write_all(b"\x1b[H\x1b[2J")?;
    data(text)
}

pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}
