//! Escapes in text from the network: characters that command a terminal or begin a new line are shown in a
//! log, never obeyed.

use std::{borrow::Cow, fmt::Write as _, io};

use tracing_subscriber::fmt::MakeWriter;

/// The text with every control character as `\u001b`, and so with those that reverse its direction.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if commands(letter) => {
                let _ = write!(shown, "\\u{:04x}", u32::from(letter));
            }
            _ => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

fn commands(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes each event, which arrives whole, as one line.
pub struct Lines<W>(pub W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Lines<W> {
    type Writer = EscapedLine<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapedLine(self.0.make_writer())
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        EscapedLine(self.0.make_writer_for(meta))
    }
}

pub struct EscapedLine<W>(W);

impl<W: io::Write> io::Write for EscapedLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        // A reader that left or a full disk costs the line. An error here would make the subscriber complain
        // on standard error, which panics when that is closed too.
        let _ = match printable(line) {
            Cow::Borrowed(_) => self.0.write_all(event),
            Cow::Owned(shown) => self.0.write_all(format!("{shown}\n").as_bytes()),
        };
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
