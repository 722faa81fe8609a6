//! Regular expressions as Envoy reads them: the syntax of RE2, byte by byte.
//!
//! Envoy refuses all of its configuration for one expression that it cannot read, so an expression is read here
//! first. What is accepted here compiles there: a test gives both the same expressions.

use std::collections::BTreeSet;

use crate::{Path, Violations};

mod class;
mod error;
mod names;

use error::RegularExpressionError;

/// RE2's limit for the counts of `{n,m}`, multiplied where one stands inside another.
const MAX_REPEAT: u64 = 1000;
/// Limit of steps that an expression compiles to: a fraction of what RE2 has memory for.
const MAX_STEPS: u64 = 100_000;

/// Checks an expression.
pub(crate) fn validate(expression: &str, path: &Path, found: &mut Violations) {
    if let Err(reason) = check(expression) {
        found.add(path, format!("must be a regular expression of RE2: {reason}"));
    }
}

/// Reads an expression as RE2 does.
pub(crate) fn check(expression: &str) -> Result<(), RegularExpressionError> {
    let mut parser = Parser { rest: expression.as_bytes(), ..Parser::default() };
    while let Some(byte) = parser.next() {
        parser.token(byte)?;
    }
    if !parser.open.is_empty() {
        return Err(RegularExpressionError::UnclosedGroup);
    }
    match parser.frame.steps {
        steps if steps > MAX_STEPS => Err(RegularExpressionError::TooLarge),
        _ => Ok(()),
    }
}

/// The part of a group read so far.
#[derive(Debug, Default)]
struct Frame {
    steps: u64,
    /// The largest product of counts inside.
    repeats: u64,
    /// Steps and repeats of the operand of a repetition that may follow.
    operand: Option<(u64, u64)>,
    /// The operand is a repetition already.
    repeated: bool,
}

impl Frame {
    fn push(&mut self, steps: u64, repeats: u64) {
        self.steps = self.steps.saturating_add(steps);
        self.repeats = self.repeats.max(repeats);
        (self.operand, self.repeated) = (Some((steps, repeats)), false);
    }
}

/// The unread part of an expression. Envoy reads characters of several bytes as bytes.
#[derive(Debug, Default)]
struct Parser<'a> {
    rest: &'a [u8],
    frame: Frame,
    /// The frames around the current one.
    open: Vec<Frame>,
    names: BTreeSet<&'a [u8]>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text.as_bytes());
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn token(&mut self, byte: u8) -> Result<(), RegularExpressionError> {
        match byte {
            b'(' if self.eat("?") => self.extended_group()?,
            b'(' => self.group(),
            b')' => self.close()?,
            b'|' => {
                self.frame.steps = self.frame.steps.saturating_add(1);
                self.frame.operand = None;
            }
            b'[' => {
                let steps = class::read(self)?;
                self.frame.push(steps, 1);
            }
            b'*' | b'+' | b'?' => self.repeat(&char::from(byte).to_string(), None)?,
            b'{' => match self.bounds() {
                Some((text, min, max)) => self.repeat(&text, Some((min, max)))?,
                None => self.frame.push(1, 1),
            },
            b'\\' => self.escape()?,
            _ => self.frame.push(2, 1),
        }
        Ok(())
    }

    fn group(&mut self) {
        self.open.push(std::mem::take(&mut self.frame));
    }

    fn close(&mut self) -> Result<(), RegularExpressionError> {
        let outer = self.open.pop().ok_or(RegularExpressionError::UnopenedGroup)?;
        let inner = std::mem::replace(&mut self.frame, outer);
        self.frame.push(inner.steps.saturating_add(2), inner.repeats.max(1));
        Ok(())
    }

    /// Reads on after `(?`: a group with a name, or flags.
    fn extended_group(&mut self) -> Result<(), RegularExpressionError> {
        if self.eat("P<") || (!self.rest.starts_with(b"<=") && !self.rest.starts_with(b"<!") && self.eat("<"))
        {
            let end = self.rest.iter().position(|&byte| byte == b'>');
            let end = end.ok_or(RegularExpressionError::UnclosedGroupName)?;
            let (name, rest) = self.rest.split_at(end);
            let is_name = !name.is_empty() && name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_name || !self.names.insert(name) {
                return Err(RegularExpressionError::GroupName(String::from_utf8_lossy(name).into_owned()));
            }
            self.rest = &rest[1..];
            self.group();
            return Ok(());
        }
        let mut negated = false;
        let mut given = false;
        loop {
            match self.next() {
                Some(b'i' | b'm' | b's' | b'U') => given = true,
                Some(b'-') if !negated => (negated, given) = (true, false),
                Some(b':' | b')') if negated && !given => break,
                Some(b':') => {
                    self.group();
                    return Ok(());
                }
                Some(b')') => {
                    self.frame.operand = None;
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(RegularExpressionError::Flags)
    }

    /// The counts of a repetition; `None` where the brace stands for itself.
    fn bounds(&mut self) -> Option<(String, u64, Option<u64>)> {
        let end = self.rest.iter().position(|&byte| byte == b'}')?;
        let text = std::str::from_utf8(&self.rest[..end]).ok()?;
        let number = |digits: &str| {
            let plain = digits == "0" || (!digits.is_empty() && !digits.starts_with('0'));
            digits.parse::<u64>().ok().filter(|_| plain && !digits.starts_with('+'))
        };
        let (min, max) = match text.split_once(',') {
            None => (number(text)?, Some(number(text)?)),
            Some((min, "")) => (number(min)?, None),
            Some((min, max)) => (number(min)?, Some(number(max)?)),
        };
        self.rest = &self.rest[end + 1..];
        Some((format!("{{{text}}}"), min, max))
    }

    fn repeat(
        &mut self,
        operator: &str,
        bounds: Option<(u64, Option<u64>)>,
    ) -> Result<(), RegularExpressionError> {
        self.eat("?");
        let frame = &mut self.frame;
        let Some((steps, repeats)) = frame.operand else {
            return Err(RegularExpressionError::NothingToRepeat(operator.to_owned()));
        };
        if frame.repeated {
            return Err(RegularExpressionError::RepeatedTwice(operator.to_owned()));
        }
        frame.repeated = true;
        let Some((min, max)) = bounds else {
            frame.steps = frame.steps.saturating_add(2);
            frame.operand = Some((steps.saturating_add(2), repeats));
            return Ok(());
        };
        let count = max.unwrap_or(min);
        if min > MAX_REPEAT
            || max.is_some_and(|max| max < min)
            || count.max(1).saturating_mul(repeats) > MAX_REPEAT
        {
            return Err(RegularExpressionError::Count(operator.to_owned()));
        }
        let steps = steps.saturating_add(2).saturating_mul(count + 1);
        let repeats = count.max(1) * repeats;
        frame.steps = frame.steps.saturating_add(steps);
        frame.repeats = frame.repeats.max(repeats);
        frame.operand = Some((steps, repeats));
        Ok(())
    }

    /// Reads on after a backslash, outside of a class.
    fn escape(&mut self) -> Result<(), RegularExpressionError> {
        match self.peek() {
            Some(b'A' | b'b' | b'B' | b'z' | b'C') => {
                self.next();
                self.frame.push(2, 1);
            }
            Some(b'Q') => {
                self.next();
                let end = self.rest.windows(2).position(|two| two == b"\\E").unwrap_or(self.rest.len());
                (0..end).for_each(|_| self.frame.push(1, 1));
                self.rest = &self.rest[end..];
                self.eat("\\E");
            }
            _ => {
                let steps = if class::named(self)? { 16 } else { class::character(self).map(|_| 1)? };
                self.frame.push(steps, 1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
