//! Classes of characters, and single characters that are written with a backslash.

use super::{
    Parser,
    names::{ASCII_CLASSES, UNICODE_GROUPS},
};

/// Reads a class behind its opening bracket; says how many steps it may take.
pub(super) fn read(parser: &mut Parser<'_>) -> Result<u64, String> {
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
                return Err("a range in [] must not end before it begins".to_owned());
            }
        }
    }
}

/// One character of a class.
fn one(parser: &mut Parser<'_>) -> Result<u8, String> {
    match parser.next() {
        None => Err("missing closing ]".to_owned()),
        Some(b'\\') => character(parser),
        Some(byte) => Ok(byte),
    }
}

/// Reads `[:alpha:]` and its like, if it stands here.
fn ascii_class(parser: &mut Parser<'_>) -> Result<bool, String> {
    let Some(inside) = parser.rest.strip_prefix(b"[:") else { return Ok(false) };
    let Some(end) = inside.windows(2).position(|two| two == b":]") else { return Ok(false) };
    let name = inside[..end].strip_prefix(b"^").unwrap_or(&inside[..end]);
    if !ASCII_CLASSES.iter().any(|known| known.as_bytes() == name) {
        return Err(format!("unknown class [:{}:]", String::from_utf8_lossy(name)));
    }
    parser.rest = &inside[end + 2..];
    Ok(true)
}

/// Reads `\d`, `\pL`, `\p{Greek}` and their like behind the backslash, if one stands here.
pub(super) fn named(parser: &mut Parser<'_>) -> Result<bool, String> {
    match parser.peek() {
        Some(b'd' | b'D' | b's' | b'S' | b'w' | b'W') => {
            parser.next();
            return Ok(true);
        }
        Some(b'p' | b'P') => parser.next(),
        _ => return Ok(false),
    };
    let name = if parser.eat("{") {
        let end = parser.rest.iter().position(|&byte| byte == b'}').ok_or("missing } behind \\p{")?;
        let (name, rest) = parser.rest.split_at(end);
        parser.rest = &rest[1..];
        name
    } else {
        let (name, rest) = parser.rest.split_at_checked(1).ok_or("missing name behind \\p")?;
        parser.rest = rest;
        name
    };
    let name = name.strip_prefix(b"^").unwrap_or(name);
    if UNICODE_GROUPS.iter().any(|known| known.as_bytes() == name) {
        Ok(true)
    } else {
        Err(format!("unknown group of characters \\p{{{}}}", String::from_utf8_lossy(name)))
    }
}

/// Reads one character behind a backslash.
pub(super) fn character(parser: &mut Parser<'_>) -> Result<u8, String> {
    let bad = |what: &str| Err(format!("bad escape \\{what}"));
    let Some(byte) = parser.next() else { return bad("at the end") };
    let octal = |byte: Option<u8>| byte.filter(|byte| (b'0'..=b'7').contains(byte)).map(|byte| byte - b'0');
    match byte {
        b'1'..=b'7' if octal(parser.peek()).is_none() => {
            bad(&format!("{}: there are no references to groups", char::from(byte)))
        }
        b'0'..=b'7' => {
            let mut code = u32::from(byte - b'0');
            for _ in 0..2 {
                let Some(digit) = octal(parser.peek()) else { break };
                parser.next();
                code = code * 8 + u32::from(digit);
            }
            u8::try_from(code).or_else(|_| bad("of a number above \\377"))
        }
        b'x' => hexadecimal(parser),
        b'n' => Ok(b'\n'),
        b'r' => Ok(b'\r'),
        b't' => Ok(b'\t'),
        b'a' => Ok(0x07),
        b'f' => Ok(0x0c),
        b'v' => Ok(0x0b),
        _ if byte.is_ascii_punctuation() || byte == b' ' => Ok(byte),
        _ => bad(&char::from(byte).to_string()),
    }
}

fn hexadecimal(parser: &mut Parser<'_>) -> Result<u8, String> {
    let digits = if parser.eat("{") {
        let end = parser.rest.iter().position(|&byte| byte == b'}');
        let (digits, rest) = parser.rest.split_at(end.ok_or("missing } behind \\x{")?);
        parser.rest = &rest[1..];
        digits
    } else {
        let (digits, rest) = parser.rest.split_at_checked(2).ok_or("\\x needs two digits")?;
        parser.rest = rest;
        digits
    };
    let text = std::str::from_utf8(digits).unwrap_or_default();
    let plain = !text.is_empty() && text.len() <= 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(text, 16).ok().filter(|_| plain);
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| format!("bad escape \\x{text}: two digits, or {{}} around a number up to ff"))
}
