use super::{Kri, LegacyName, SelfName, SystemName};

/// Scheme of the name of a proxy's object, with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    Kri(Kri),
    SelfName(SelfName),
    System(SystemName),
    Legacy(LegacyName),
    /// None of these: the name of a service, a user's own object, or a typing mistake.
    Other,
}

impl Class {
    /// The word for it in documents and tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            Class::Kri(_) => "kri",
            Class::SelfName(_) => "self",
            Class::System(_) => "system",
            Class::Legacy(_) => "legacy",
            Class::Other => "other",
        }
    }

    /// The resource the name itself tells; most names of a proxy's own objects need its layout for that.
    pub fn kri(&self) -> Option<&Kri> {
        match self {
            Class::Kri(kri)
            | Class::System(SystemName::Of(kri))
            | Class::Legacy(LegacyName::Destination(kri)) => Some(kri),
            _ => None,
        }
    }
}

/// Reads the name of a proxy's object in whichever scheme it follows.
pub fn classify(name: &str) -> Class {
    if let Ok(kri) = name.parse() {
        return Class::Kri(kri);
    }
    if let Ok(own) = name.parse() {
        return Class::SelfName(own);
    }
    if let Ok(system) = name.parse() {
        return Class::System(system);
    }
    LegacyName::parse(name).map_or(Class::Other, Class::Legacy)
}

/// Reads the name of a proxy's object as its statistics spell it.
pub fn classify_stat(name: &str) -> Class {
    match classify(name) {
        Class::Other => LegacyName::parse_stat(name).map_or(Class::Other, Class::Legacy),
        read => read,
    }
}
