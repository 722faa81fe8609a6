//! One page of metrics for everything beside an application: Envoy's, the application's, the agent's own.
//!
//! [`merge`] is a pure function of texts: names that Envoy split are restored ([`names`]) and get
//! the labels that only Kuma has ([`labels`]), older names are added beside unified ones during a migration
//! ([`legacy`]), and every family is written once ([`exposition`]). [`gather`] asks for the texts; a source that does not answer is left out and said so.

mod exposition;
mod gather;
mod labels;
mod legacy;
mod names;
pub mod otlp;
mod profile;
mod view;

use self::{
    exposition::Family,
    legacy::LegacyNames,
    names::{KnownNames, PageNames},
    profile::Profile,
};
pub use self::{
    exposition::{CONTENT_TYPE, Families},
    gather::Sources,
    view::{View, applications},
};

/// Says which application a series comes from.
const APPLICATION: &str = "kuma_application";

/// The texts to merge.
#[derive(Debug, Default)]
pub struct Texts {
    pub envoy: String,
    pub agent: String,
    /// By the application's name.
    pub applications: Vec<(String, String)>,
}

/// All texts, each family once and its samples together.
fn merge(
    texts: &Texts,
    known: &KnownNames,
    older: Option<&LegacyNames>,
    profile: Option<&Profile>,
) -> Families {
    let mut merged = Families::default();
    add_envoy(&mut merged, &texts.envoy, known, older, profile);
    Families::parse(&texts.agent).into_families().for_each(|family| merged.add(family));
    for (name, text) in &texts.applications {
        for mut family in Families::parse(text).into_families() {
            family.samples.iter_mut().for_each(|sample| sample.set_label(APPLICATION, name));
            merged.add(family);
        }
    }
    merged
}

fn add_envoy(
    merged: &mut Families,
    text: &str,
    known: &KnownNames,
    older: Option<&LegacyNames>,
    profile: Option<&Profile>,
) {
    let families = Families::parse(text);
    let written = PageNames::of(&families);
    for family in families.into_families() {
        let Family { name, kind, help, samples } = family;
        for mut sample in samples {
            let whole = known.restore(&name, &mut sample, &written);
            let copy = older.and_then(|older| older.translate(&whole, &sample));
            let wanted =
                |(name, sample): &(String, _)| profile.is_none_or(|profile| profile.wants(name, sample));
            for (name, sample) in [(whole, sample)].into_iter().chain(copy).filter(wanted) {
                let family = merged.at(&name);
                if family.samples.is_empty() {
                    (family.kind, family.help) = (kind.clone(), help.clone());
                }
                family.samples.push(sample);
            }
        }
    }
}

#[cfg(test)]
mod tests;
