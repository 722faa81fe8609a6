//! Enumerations that keep a value they do not know.
//!
//! A misspelled value must not stop the decoder at the first mistake: validation reports it together
//! with everything else that is wrong. So an unknown word is carried in `Other`.

/// Words of an enumeration, for validation.
pub trait OpenEnum {
    /// The words it knows.
    const WORDS: &'static [&'static str];

    fn is_known(&self) -> bool;
}

/// Defines an enumeration of words with an additional `Other(String)`; the default is `Other("")`,
/// which stands for a word that was left out.
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A word this enumeration does not know.
            Other(String),
        }

        impl $crate::kinds::open_enum::OpenEnum for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn is_known(&self) -> bool {
                !matches!(self, $name::Other(_))
            }
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $word,)+
                    $name::Other(word) => word,
                }
            }

            /// True if the field was left out.
            pub fn is_absent(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::Other(String::new())
            }
        }

        impl ::std::convert::From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => $name::$variant,)+
                    other => $name::Other(other.to_owned()),
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word: String = ::serde::Deserialize::deserialize(deserializer)?;
                Ok($name::from(word.as_str()))
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "enum": [$($word),+] })
            }
        }
    };
}

pub(crate) use open_enum;
