//! The macro that declares a section of the configuration.
//!
//! A setting is named once: field, type, default, key, environment variable and documentation stand
//! in one entry. Reading files and the environment, printing the defaults and the reference page all
//! walk over the entries of this declaration.

use crate::Setting;

/// A group of settings.
pub trait Section: Default {
    /// Text of the reference page about this section.
    const DOC: &'static str;

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

/// Walks over a section that is in another one: below its key, or beside the other's sections if it has none.
pub fn walk<'a, S: Section>(
    section: &'a mut S,
    path: &str,
    key: Option<&'static str>,
    out: &mut Vec<Entry<'a>>,
) {
    let Some(key) = key else { return section.entries(path, out) };
    let below = join(path, key);
    out.push(Entry::Section { path: below.clone(), doc: S::DOC });
    section.entries(&below, out);
}

/// Declares a section: its settings, then the sections in it. A section without a key is the configuration of a part
/// that has several sections of its own.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $section_doc:literal])+
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, $key:literal, $env:literal;)*
            $(section $sub:ident: $sub_type:ty $(, $sub_key:literal)?;)*
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $(pub $sub: $sub_type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* $($sub: <$sub_type>::default(),)* }
            }
        }

        impl $crate::Section for $name {
            const DOC: &'static str = concat!($($section_doc, "\n"),+);

            fn entries<'a>(&'a mut self, path: &str, out: &mut Vec<$crate::Entry<'a>>) {
                $(out.push($crate::Entry::Setting($crate::Leaf {
                    path: $crate::join(path, $key),
                    env: $env,
                    doc: concat!($($doc, "\n"),+),
                    value: &mut self.$field,
                }));)*
                $(
                    let key: &[&'static str] = &[$($sub_key)?];
                    $crate::walk(&mut self.$sub, path, key.first().copied(), out);
                )*
            }
        }
    };
}
