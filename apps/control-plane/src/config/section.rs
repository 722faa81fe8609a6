//! The macro that declares a section of the configuration.
//!
//! A setting is named once: field, type, default, key, environment variable and documentation stand
//! in one entry. Reading files and the environment, printing the defaults and the reference page all
//! walk over the entries of this declaration.

use super::setting::Setting;

/// A group of settings.
pub trait Section: Default {
    /// Everything in this section and below it, settings before sub-sections.
    fn entries<'a>(&'a mut self, path: &str, out: &mut Vec<Entry<'a>>);
}

/// One step of the walk over a configuration.
pub enum Entry<'a> {
    Section { path: String, doc: &'static str },
    Setting(Leaf<'a>),
}

/// One setting.
pub struct Leaf<'a> {
    pub path: String,
    pub env: &'static str,
    pub doc: &'static str,
    pub value: &'a mut dyn Setting,
}

/// `store` + `type` = `store.type`.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

macro_rules! section {
    (
        $(#[doc = $section_doc:literal])+
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, $key:literal, $env:literal;)*
            $(section $sub:ident: $sub_type:ident, $sub_key:literal;)*
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $(pub $sub: $sub_type,)*
        }

        impl $name {
            /// What the reference page says about this section.
            pub const DOC: &'static str = concat!($($section_doc, "\n"),+);
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* $($sub: $sub_type::default(),)* }
            }
        }

        impl $crate::config::section::Section for $name {
            fn entries<'a>(&'a mut self, path: &str, out: &mut Vec<$crate::config::section::Entry<'a>>) {
                use $crate::config::section::{Entry, join};
                $(out.push(Entry::Setting($crate::config::section::Leaf {
                    path: join(path, $key),
                    env: $env,
                    doc: concat!($($doc, "\n"),+),
                    value: &mut self.$field,
                }));)*
                $(
                    let below = join(path, $sub_key);
                    out.push(Entry::Section { path: below.clone(), doc: $sub_type::DOC });
                    self.$sub.entries(&below, out);
                )*
            }
        }
    };
}

pub(crate) use section;
