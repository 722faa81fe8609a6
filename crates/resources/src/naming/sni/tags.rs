use std::collections::BTreeMap;

use crate::{labels, naming::Error};

/// The SNI of the endpoints that carry all of these tags; `kuma.io/service` names the service.
pub fn from_tags(tags: &BTreeMap<String, String>) -> String {
    let service = tags.get(labels::SERVICE).map_or("", String::as_str);
    let others: Vec<String> =
        tags.iter().filter(|(key, _)| *key != labels::SERVICE).map(|(k, v)| format!("{k}={v}")).collect();
    if others.is_empty() { service.to_owned() } else { format!("{service}{{{}}}", others.join(",")) }
}

/// Reads the tags back, the service among them.
pub fn to_tags(sni: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut tags = BTreeMap::new();
    let service = match sni.split_once('{') {
        None => sni,
        Some((_, rest)) if rest.contains('{') => return Err(Error::SniBraces(sni.to_owned())),
        Some((service, rest)) => {
            for pair in rest.replace('}', "").split(',') {
                let (key, value) = pair.split_once('=').ok_or(Error::SniTags)?;
                if value.contains('=') {
                    return Err(Error::SniTags);
                }
                tags.insert(key.to_owned(), value.to_owned());
            }
            service
        }
    };
    tags.insert(labels::SERVICE.to_owned(), service.to_owned());
    Ok(tags)
}
