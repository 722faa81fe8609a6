//! The types a setting can have, each with how it is read, written and described.

use std::{net::IpAddr, num::IntErrorKind};

use resources::{
    duration::{GoDuration, InvalidDuration},
    naming::sni::{Form, Formats, SniFormatError},
};
use runtime::{
    logs::{Level, LogFormat},
    tls::MinVersion,
};
use serde_json::Value;
use topology::cidr::{Ipv4Range, Ipv6Prefix, PrefixError, RangeError};

/// Reason that a setting does not take a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    #[error("expected a single value")]
    NotSingle,
    #[error("expected a string; put the value in quotes")]
    NotString,
    #[error("expected a list of strings")]
    NotList,
    /// A value that is none of those that the setting accepts.
    #[error("expected {accepted}")]
    NotAccepted { accepted: String },
    #[error("too large: expected {accepted}")]
    TooLarge { accepted: String },
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    #[error("a duration cannot be negative here")]
    NegativeDuration,
    #[error(transparent)]
    Ipv4Range(#[from] RangeError),
    #[error(transparent)]
    Ipv6Prefix(#[from] PrefixError),
    #[error("{cause}: expected {accepted}")]
    SniFormats { cause: SniFormatError, accepted: String },
}

/// A value that can be set from YAML or from an environment variable (then always a string).
pub trait Setting {
    /// Takes the value.
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue>;

    fn to_json(&self) -> Value;

    /// Possible values, in words.
    fn accepts(&self) -> String;

    /// True for values that must not be shown.
    fn secret(&self) -> bool {
        false
    }

    /// The error for a value that is none of the possible ones.
    fn not_accepted(&self) -> InvalidValue {
        InvalidValue::NotAccepted { accepted: self.accepts() }
    }

    /// Reads the text of an environment variable.
    fn set_text(&mut self, text: &str) -> Result<(), InvalidValue> {
        self.set(&Value::String(text.to_owned()))
    }
}

/// A string that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("*****")
    }
}

/// Reads a text.
pub fn text(value: &Value) -> Result<String, InvalidValue> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) | Value::Object(_) => Err(InvalidValue::NotSingle),
        _ => Err(InvalidValue::NotString),
    }
}

impl Setting for String {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        *self = text(value)?;
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.as_str().into()
    }
    fn accepts(&self) -> String {
        "a string".to_owned()
    }
}

impl Setting for Password {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        self.0 = text(value)?;
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.0.as_str().into()
    }
    fn accepts(&self) -> String {
        "a string".to_owned()
    }
    fn secret(&self) -> bool {
        true
    }
}

impl Setting for bool {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        *self = match value {
            Value::Bool(value) => *value,
            // The spellings Go's strconv knows, because environment variables were written for it.
            Value::String(text) => match text.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return Err(self.not_accepted()),
            },
            _ => return Err(self.not_accepted()),
        };
        Ok(())
    }
    fn to_json(&self) -> Value {
        (*self).into()
    }
    fn accepts(&self) -> String {
        "true or false".to_owned()
    }
}

macro_rules! number {
    ($type:ty, $what:literal) => {
        impl Setting for $type {
            fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
                let text = match value {
                    Value::Number(number) => number.to_string(),
                    Value::String(text) => text.clone(),
                    _ => return Err(self.not_accepted()),
                };
                *self = text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
                    IntErrorKind::PosOverflow => InvalidValue::TooLarge { accepted: self.accepts() },
                    _ => self.not_accepted(),
                })?;
                Ok(())
            }
            fn to_json(&self) -> Value {
                (*self).into()
            }
            fn accepts(&self) -> String {
                format!("{} from 0 to {}", $what, <$type>::MAX)
            }
        }
    };
}

number!(u16, "a port number");
number!(u32, "a number");

impl Setting for GoDuration {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        let Value::String(text) = value else { return Err(self.not_accepted()) };
        let duration: GoDuration = text.parse()?;
        if duration.to_std().is_none() {
            return Err(InvalidValue::NegativeDuration);
        }
        *self = duration;
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.to_string().into()
    }
    fn accepts(&self) -> String {
        "a duration such as 500ms, 10s or 1h30m".to_owned()
    }
}

impl Setting for IpAddr {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        let parsed = text(value)?.parse();
        *self = parsed.map_err(|_| self.not_accepted())?;
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.to_string().into()
    }
    fn accepts(&self) -> String {
        "an IP address of this machine, or 0.0.0.0 or :: for all of them".to_owned()
    }
}

impl Setting for Ipv4Range {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        *self = text(value)?.parse()?;
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.to_string().into()
    }
    fn accepts(&self) -> String {
        "a range of IPv4 addresses such as 241.0.0.0/8".to_owned()
    }
}

impl Setting for Option<Ipv6Prefix> {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        *self = match text(value)?.as_str() {
            "" => None,
            range => Some(range.parse()?),
        };
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.map(|prefix| prefix.to_string()).unwrap_or_default().into()
    }
    fn accepts(&self) -> String {
        "a range of IPv6 addresses such as fd00:240::/96, or nothing".to_owned()
    }
}

impl Setting for Vec<String> {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        *self = match value {
            Value::Null => Vec::new(),
            Value::Array(items) => items.iter().map(text).collect::<Result<_, _>>()?,
            _ => return Err(InvalidValue::NotList),
        };
        Ok(())
    }
    fn to_json(&self) -> Value {
        self.as_slice().into()
    }
    fn accepts(&self) -> String {
        "a list of strings; in the environment separated by commas".to_owned()
    }
    fn set_text(&mut self, text: &str) -> Result<(), InvalidValue> {
        *self = text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect();
        Ok(())
    }
}

impl Setting for Formats {
    fn set(&mut self, value: &Value) -> Result<(), InvalidValue> {
        let mut names: Vec<String> = Vec::new();
        names.set(value)?;
        read_formats(self, &names)
    }

    fn to_json(&self) -> Value {
        self.names().collect()
    }

    fn accepts(&self) -> String {
        let names = Form::ALL.map(Form::name).join(" and ");
        format!("a list of one or both of {names}; in the environment separated by commas")
    }

    fn set_text(&mut self, text: &str) -> Result<(), InvalidValue> {
        let mut names: Vec<String> = Vec::new();
        names.set_text(text)?;
        read_formats(self, &names)
    }
}

fn read_formats(formats: &mut Formats, names: &[String]) -> Result<(), InvalidValue> {
    let read = Formats::named(names.iter().map(String::as_str));
    *formats = read.map_err(|cause| InvalidValue::SniFormats { cause, accepted: formats.accepts() })?;
    Ok(())
}

/// Declares an enum whose variants have names, or gives an existing one its names.
#[macro_export]
macro_rules! choice {
    ($(#[doc = $doc:literal])+ pub enum $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($variant),+ }
        $crate::choice!($name { $($variant = $text),+ });
    };
    ($name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl $crate::Setting for $name {
            fn set(&mut self, value: &$crate::Value) -> Result<(), $crate::InvalidValue> {
                *self = match $crate::text(value)?.as_str() {
                    $($text => $name::$variant,)+
                    _ => return Err($crate::Setting::not_accepted(self)),
                };
                Ok(())
            }
            fn to_json(&self) -> $crate::Value {
                match self { $($name::$variant => $text.into()),+ }
            }
            fn accepts(&self) -> String {
                format!("one of {}", [$($text),+].join(", "))
            }
        }
    };
}

choice!(MinVersion { Tls12 = "TLSv1_2", Tls13 = "TLSv1_3" });
choice!(Level { Off = "off", Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace" });
choice!(LogFormat { Text = "text", Json = "json" });
