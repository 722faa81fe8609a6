//! Values that Kuma accepts in several spellings.

use std::{fmt, num::NonZeroU16, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

/// A port of TCP or UDP; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Port(NonZeroU16);

impl Port {
    /// Envoy's port for traffic to the application.
    pub const INBOUND: Port = Port::known(15006);
    /// Envoy's port for traffic of the application.
    pub const OUTBOUND: Port = Port::known(15001);
    /// Port of kuma-dp's DNS server.
    pub const DNS: Port = Port::known(15053);

    const fn known(port: u16) -> Port {
        match NonZeroU16::new(port) {
            Some(port) => Port(port),
            None => Port(NonZeroU16::MIN),
        }
    }

    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Port, String> {
        text.trim()
            .parse()
            .map(Port)
            .map_err(|_| format!("value '{text}' is not a valid port (uint16 in the range [1, 65535])"))
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Port, D::Error> {
        struct AnyPort;
        impl Visitor<'_> for AnyPort {
            type Value = Port;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port from 1 to 65535")
            }
            fn visit_u64<E: de::Error>(self, port: u64) -> Result<Port, E> {
                self.visit_str(&port.to_string())
            }
            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Port, E> {
                self.visit_str(&port.to_string())
            }
            fn visit_str<E: de::Error>(self, port: &str) -> Result<Port, E> {
                port.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(AnyPort)
    }
}

/// Ports as a list, or as one text with commas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Ports(pub Vec<Port>);

impl Ports {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Port> + '_ {
        self.0.iter().copied()
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let ports = text.split(',').map(str::trim).filter(|port| !port.is_empty()).map(str::parse);
        ports.collect::<Result<_, _>>().map(Ports)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ports, D::Error> {
        struct AnyPorts;
        impl<'de> Visitor<'de> for AnyPorts {
            type Value = Ports;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of ports")
            }
            fn visit_u64<E: de::Error>(self, port: u64) -> Result<Ports, E> {
                self.visit_str(&port.to_string())
            }
            fn visit_str<E: de::Error>(self, ports: &str) -> Result<Ports, E> {
                ports.parse().map_err(E::custom)
            }
            fn visit_unit<E: de::Error>(self) -> Result<Ports, E> {
                Ok(Ports::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ports, A::Error> {
                let mut ports = Vec::new();
                while let Some(port) = list.next_element()? {
                    ports.push(port);
                }
                Ok(Ports(ports))
            }
        }
        deserializer.deserialize_any(AnyPorts)
    }
}

/// A time as Go writes it: `2s`, `1m30s`, `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<GoDuration, String> {
        let wrong = || format!("'{text}' is not a duration, like 2s, 500ms or 1m30s");
        let mut rest = text.trim();
        let mut total = Duration::ZERO;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            if rest == "0" {
                break;
            }
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
            let (number, after) = rest.split_at(digits);
            let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            let seconds = match unit {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(wrong()),
            };
            let part = number.parse::<f64>().map_err(|_| wrong())? * seconds;
            total = Duration::try_from_secs_f64(part)
                .ok()
                .and_then(|part| total.checked_add(part))
                .ok_or_else(wrong)?;
            rest = after;
        }
        Ok(GoDuration(total))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
