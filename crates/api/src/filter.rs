//! Filters of lists, read from the query.

use resources::{
    Kind, Resource, Violations,
    kinds::{
        dataplane::{Dataplane, GatewayType},
        tags::Tags,
    },
};

use crate::{Error, call::Call, list::TITLE};

/// The conditions of one request; all must hold.
#[derive(Debug, Default, PartialEq)]
pub struct Filter {
    name: Option<String>,
    labels: Vec<(String, String)>,
    tags: Vec<(String, String)>,
    gateway: Option<Gateway>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gateway {
    Any,
    None,
    Builtin,
    Delegated,
}

impl Filter {
    pub fn read(call: &Call, kind: Kind) -> Result<Filter, Error> {
        let mut found = Violations::default();
        let mut filter = Filter {
            name: call.query("name").map(str::to_owned),
            labels: labels(call, &mut found),
            ..Filter::default()
        };
        if kind == Kind::Dataplane {
            filter.tags = tags(call);
            filter.gateway = gateway(call, &mut found);
        }
        match found.into_result() {
            Ok(()) => Ok(filter),
            Err(violations) => Err(Error::Invalid { title: TITLE.into(), violations }),
        }
    }

    /// True if every resource matches, so that looking at them is not needed.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    pub fn matches(&self, resource: &Resource) -> bool {
        self.name.as_ref().is_none_or(|part| resource.name().contains(part.as_str()))
            && self.labels.iter().all(|(key, value)| resource.label(key) == Some(value))
            && self.matches_dataplane(resource)
    }

    fn matches_dataplane(&self, resource: &Resource) -> bool {
        let Some(dataplane) = resource.spec.get::<Dataplane>() else { return true };
        self.gateway.is_none_or(|wanted| wanted.matches(dataplane))
            && (self.tags.is_empty() || tag_sets(dataplane).any(|tags| self.tags_match(tags)))
    }

    /// Every wanted tag is there, with a value that contains the wanted one.
    fn tags_match(&self, tags: &Tags) -> bool {
        self.tags.iter().all(|(key, part)| tags.get(key).is_some_and(|value| value.contains(part)))
    }
}

impl Gateway {
    fn matches(self, dataplane: &Dataplane) -> bool {
        let kind = dataplane.gateway().map(|gateway| gateway.kind);
        match self {
            Gateway::Any => kind.is_some(),
            Gateway::None => kind.is_none(),
            Gateway::Builtin => kind == Some(GatewayType::Builtin),
            Gateway::Delegated => kind == Some(GatewayType::Delegated),
        }
    }
}

/// The tags of each inbound and of the gateway.
pub fn tag_sets(dataplane: &Dataplane) -> impl Iterator<Item = &Tags> {
    let inbounds = dataplane.inbounds().iter().map(|inbound| &inbound.tags);
    inbounds.chain(dataplane.gateway().map(|gateway| &gateway.tags))
}

/// `filter[labels.KEY]=VALUE`.
fn labels(call: &Call, found: &mut Violations) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for (parameter, value) in call.query_pairs() {
        let Some(rest) = parameter.strip_prefix("filter[") else { continue };
        let field = format!("{}.{parameter}", call.route.path);
        match rest.strip_prefix("labels.").map(|rest| rest.split_once(']')) {
            None => found.add(field, "filters are only supported on labels"),
            Some(Some((key, ""))) => {
                // A key given twice means its last value.
                labels.retain(|(k, _)| k != key);
                labels.push((key.to_owned(), value.clone()));
            }
            Some(_) => found.add(field, "advanced filters are not supported"),
        }
    }
    labels
}

/// `tag=key:value`; a value may contain colons, what has none is ignored.
fn tags(call: &Call) -> Vec<(String, String)> {
    let given = call.query_pairs().iter().filter(|(name, _)| name == "tag");
    given
        .filter_map(|(_, tag)| tag.split_once(':'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn gateway(call: &Call, found: &mut Violations) -> Option<Gateway> {
    let given = call.query("gateway")?;
    match given.to_lowercase().as_str() {
        "true" => Some(Gateway::Any),
        "false" => Some(Gateway::None),
        "builtin" => Some(Gateway::Builtin),
        "delegated" => Some(Gateway::Delegated),
        _ => {
            let field = format!("{}.gateway", call.route.path);
            found.add(
                field,
                format!("should use `true`, `false`, `builtin` or `delegated` instead of {given}"),
            );
            None
        }
    }
}
