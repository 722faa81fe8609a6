//! Format strings of access logs: text with commands such as `%REQ(:path?x-path):20%`.

/// A command with what was given to it.
struct Command<'a> {
    /// The whole of it, with the percent signs.
    token: &'a str,
    name: &'a str,
    /// `None` without parentheses.
    arguments: Option<&'a str>,
    limit: Option<&'a str>,
}

/// Mistake in a format, in Kuma's words. `token` is the command that has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LogFormatError {
    #[error("expected a command operator to start at position {position}, instead got: {tail:?}")]
    NoCommand { position: usize, tail: String },
    #[error("command \"%{command}%\" requires {what}, instead got {token:?}")]
    Arguments { command: &'static str, what: &'static str, token: String },
    #[error("command \"%{name}%\" doesn't support arguments or max length constraint, instead got {token:?}")]
    Unsupported { name: String, token: String },
    #[error("start time format string contains a newline in {token:?}")]
    TimeWithNewline { token: String },
    #[error("more than 1 alternative header specified in {token:?}")]
    Alternatives { token: String },
    #[error("header name contains a newline in {token:?}")]
    HeaderWithNewline { token: String },
    #[error("length must be an integer, instead got {limit:?} in {token:?}")]
    Length { limit: String, token: String },
}

/// Checks a format as Kuma does.
pub(super) fn check(format: &str) -> Result<(), LogFormatError> {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let tail = &rest[at..];
        let Some(command) = Command::read(tail) else {
            let position = format.len() - tail.len() + 1;
            return Err(LogFormatError::NoCommand { position, tail: tail.to_owned() });
        };
        command.check()?;
        rest = &tail[command.token.len()..];
    }
    Ok(())
}

impl<'a> Command<'a> {
    /// Reads the command a text begins with.
    fn read(text: &'a str) -> Option<Self> {
        let inner = text.strip_prefix('%')?;
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let (name, mut rest) = inner.split_at(inner.find(|c| !is_name(c))?);
        let mut arguments = None;
        if let Some((inside, after)) = rest.strip_prefix('(').and_then(|open| open.split_once(')')) {
            (arguments, rest) = (Some(inside), after);
        }
        let mut limit = None;
        if let Some(number) = rest.strip_prefix(':') {
            let (digits, after) = number.split_at(number.find(|c: char| !c.is_ascii_digit())?);
            (limit, rest) = (Some(digits), after);
        }
        let after = rest.strip_prefix('%')?;
        let is_read = !name.is_empty() && limit != Some("");
        let token = &text[..text.len() - after.len()];
        is_read.then_some(Command { token, name, arguments, limit })
    }

    fn check(&self) -> Result<(), LogFormatError> {
        let arguments = self.arguments.unwrap_or_default();
        let token = || self.token.to_owned();
        let needs = |command, what| Err(LogFormatError::Arguments { command, what, token: token() });
        let needs_headers =
            |command| needs(command, "a header and optional alternative header names as its arguments");
        match self.name {
            "REQ" if self.arguments.is_none() => needs_headers("REQ(X?Y):Z"),
            "RESP" if self.arguments.is_none() => needs_headers("RESP(X?Y):Z"),
            "TRAILER" if self.arguments.is_none() => needs_headers("TRAILER(X?Y):Z"),
            "REQ" | "RESP" | "TRAILER" => self.check_limit().and_then(|()| self.check_headers(arguments)),
            "DYNAMIC_METADATA" if self.arguments.is_none() => needs(
                "DYNAMIC_METADATA(NAMESPACE:KEY*):Z",
                "a filter namespace and optional path as its arguments",
            ),
            "FILTER_STATE" if arguments.is_empty() => needs("FILTER_STATE(KEY):Z", "a key as its argument"),
            "DYNAMIC_METADATA" | "FILTER_STATE" => self.check_limit(),
            "START_TIME" if has_newline(arguments) => Err(LogFormatError::TimeWithNewline { token: token() }),
            "START_TIME" => Ok(()),
            name if self.arguments.is_some() || self.limit.is_some() => {
                Err(LogFormatError::Unsupported { name: name.to_owned(), token: token() })
            }
            _ => Ok(()),
        }
    }

    fn check_headers(&self, headers: &str) -> Result<(), LogFormatError> {
        let token = || self.token.to_owned();
        if headers.matches('?').count() > 1 {
            return Err(LogFormatError::Alternatives { token: token() });
        }
        if headers.contains(['\0', '\r', '\n']) {
            return Err(LogFormatError::HeaderWithNewline { token: token() });
        }
        Ok(())
    }

    fn check_limit(&self) -> Result<(), LogFormatError> {
        match self.limit {
            Some(limit) if limit.parse::<i64>().is_err() => {
                Err(LogFormatError::Length { limit: limit.to_owned(), token: self.token.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

/// True for time formats with `%n`, also with flags and a width.
fn has_newline(format: &str) -> bool {
    format.split('%').skip(1).any(|specifier| {
        let width = specifier.trim_start_matches(['-', '_', '0', '^', '#']);
        width.trim_start_matches(|c: char| c.is_ascii_digit() && c != '0').starts_with('n')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_known_forms_of_commands_are_fine() {
        for format in [
            "",
            "plain text",
            "[%START_TIME%] %START_TIME(%Y/%m/%dT%H:%M:%S%z)% %KUMA_MESH%",
            "%REQ(:method)% %REQ(x-path?:path):20% %RESP(a)% %TRAILER(?b)% %REQ()%",
            "%DYNAMIC_METADATA(a:b:c):5% %FILTER_STATE(key)% %SOMETHING_NEW_256%",
        ] {
            assert_eq!(check(format), Ok(()), "{format}");
        }
    }

    #[test]
    fn mistakes_are_named_in_kumas_words() {
        for (format, expect) in [
            ("50%", "expected a command operator to start at position 3, instead got: \"%\""),
            ("é %a%", "expected a command operator to start at position 4, instead got: \"%a%\""),
            ("%REQ(a%", "expected a command operator to start at position 1, instead got: \"%REQ(a%\""),
            ("%REQ(a):%", "expected a command operator to start at position 1, instead got: \"%REQ(a):%\""),
            (
                "%RESP:3%",
                "command \"%RESP(X?Y):Z%\" requires a header and optional alternative header names as its \
                 arguments, instead got \"%RESP:3%\"",
            ),
            ("%REQ(a?b?c)%", "more than 1 alternative header specified in \"%REQ(a?b?c)%\""),
            ("%REQ(a\n)%", "header name contains a newline in \"%REQ(a\\n)%\""),
            (
                "%REQ(a):99999999999999999999%",
                "length must be an integer, instead got \"99999999999999999999\" in \
                 \"%REQ(a):99999999999999999999%\"",
            ),
            (
                "%DYNAMIC_METADATA%",
                "command \"%DYNAMIC_METADATA(NAMESPACE:KEY*):Z%\" requires a filter namespace and optional \
                 path as its arguments, instead got \"%DYNAMIC_METADATA%\"",
            ),
            (
                "%FILTER_STATE()%",
                "command \"%FILTER_STATE(KEY):Z%\" requires a key as its argument, instead got \
                 \"%FILTER_STATE()%\"",
            ),
            ("%START_TIME(%-12n)%", "start time format string contains a newline in \"%START_TIME(%-12n)%\""),
            (
                "%PROTOCOL(a)%",
                "command \"%PROTOCOL%\" doesn't support arguments or max length constraint, instead got \
                 \"%PROTOCOL(a)%\"",
            ),
        ] {
            assert_eq!(check(format).map_err(|error| error.to_string()), Err(expect.to_owned()), "{format}");
        }
    }
}
