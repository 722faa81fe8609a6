//! Classes of characters, and single characters that are written with a backslash.

use super::{
    Parser, RegularExpressionError,
    names::{ASCII_CLASSES, UNICODE_GROUPS},
};

/// Reads a class behind its opening bracket; says how many steps it may take.
pub(super) fn read(parser: &mut Parser<'_>) -> Result<u64, RegularExpressionError> {
    parser.eat("^");
    let mut steps = 2;
    let mut first = true;
    loop {
        if !first && parser.eat("]") {
            return Ok(steps);
        }
        first = false;
        steps += 4;
        if ascii_class(parser)? {
            continue;
        }
        if parser.peek() == Some(b'\\') {
            let before = parser.rest;
            parser.next();
            if named(parser)? {
                steps += 12;
                continue;
            }
            parser.rest = before;
        }
        let low = one(parser)?;
        if parser.peek() == Some(b'-') && parser.rest.get(1).is_some_and(|&next| next != b']') {
            parser.next();
            let high = one(parser)?;
            if high < low {
                return Err(RegularExpressionError::ClassRange);
            }
        }
    }
}

/// One character of a class.
fn one(parser: &mut Parser<'_>) -> Result<u8, RegularExpressionError> {
    match parser.next() {
        None => Err(RegularExpressionError::UnclosedClass),
        Some(b'\\') => character(parser),
        Some(byte) => Ok(byte),
    }
}

/// Reads `[:alpha:]` and its like, if it stands here.
fn ascii_class(parser: &mut Parser<'_>) -> Result<bool, RegularExpressionError> {
    let Some(inside) = parser.rest.strip_prefix(b"[:") else { return Ok(false) };
    let Some(end) = inside.windows(2).position(|two| two == b":]") else { return Ok(false) };
    let name = inside[..end].strip_prefix(b"^").unwrap_or(&inside[..end]);
    if !ASCII_CLASSES.iter().any(|known| known.as_bytes() == name) {
        return Err(RegularExpressionError::UnknownClass(String::from_utf8_lossy(name).into_owned()));
    }
    parser.rest = &inside[end + 2..];
    Ok(true)
}

/// Reads `\d`, `\pL`, `\p{Greek}` and their like behind the backslash, if one stands here.
pub(super) fn named(parser: &mut Parser<'_>) -> Result<bool, RegularExpressionError> {
    match parser.peek() {
        Some(b'd' | b'D' | b's' | b'S' | b'w' | b'W') => {
            parser.next();
            return Ok(true);
        }
        Some(b'p' | b'P') => parser.next(),
        _ => return Ok(false),
    };
    let name = if parser.eat("{") {
        let end = parser.rest.iter().position(|&byte| byte == b'}');
        let (name, rest) = parser.rest.split_at(end.ok_or(RegularExpressionError::UnclosedBrace('p'))?);
        parser.rest = &rest[1..];
        name
    } else {
        let name_and_rest = parser.rest.split_at_checked(1);
        let (name, rest) = name_and_rest.ok_or(RegularExpressionError::NoCharacterGroup)?;
        parser.rest = rest;
        name
    };
    let name = name.strip_prefix(b"^").unwrap_or(name);
    if UNICODE_GROUPS.iter().any(|known| known.as_bytes() == name) {
        Ok(true)
    } else {
        Err(RegularExpressionError::UnknownCharacterGroup(String::from_utf8_lossy(name).into_owned()))
    }
}

/// Reads one character behind a backslash.
pub(super) fn character(parser: &mut Parser<'_>) -> Result<u8, RegularExpressionError> {
    let byte = parser.next().ok_or(RegularExpressionError::EscapeAtEnd)?;
    let octal = |byte: Option<u8>| byte.filter(|byte| (b'0'..=b'7').contains(byte)).map(|byte| byte - b'0');
    match byte {
        b'1'..=b'7' if octal(parser.peek()).is_none() => {
            Err(RegularExpressionError::Reference(char::from(byte)))
        }
        b'0'..=b'7' => {
            let mut code = u32::from(byte - b'0');
            for _ in 0..2 {
                let Some(digit) = octal(parser.peek()) else { break };
                parser.next();
                code = code * 8 + u32::from(digit);
            }
            u8::try_from(code).map_err(|_| RegularExpressionError::Octal)
        }
        b'x' => hexadecimal(parser),
        b'n' => Ok(b'\n'),
        b'r' => Ok(b'\r'),
        b't' => Ok(b'\t'),
        b'a' => Ok(0x07),
        b'f' => Ok(0x0c),
        b'v' => Ok(0x0b),
        _ if byte.is_ascii_punctuation() || byte == b' ' => Ok(byte),
        _ => Err(RegularExpressionError::Escape(char::from(byte))),
    }
}

fn hexadecimal(parser: &mut Parser<'_>) -> Result<u8, RegularExpressionError> {
    let digits = if parser.eat("{") {
        let end = parser.rest.iter().position(|&byte| byte == b'}');
        let (digits, rest) = parser.rest.split_at(end.ok_or(RegularExpressionError::UnclosedBrace('x'))?);
        parser.rest = &rest[1..];
        digits
    } else {
        let digits_and_rest = parser.rest.split_at_checked(2);
        let (digits, rest) = digits_and_rest.ok_or(RegularExpressionError::HexadecimalDigits)?;
        parser.rest = rest;
        digits
    };
    let text = std::str::from_utf8(digits).unwrap_or_default();
    let plain = !text.is_empty() && text.len() <= 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(text, 16).ok().filter(|_| plain);
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| RegularExpressionError::Hexadecimal(text.to_owned()))
}
