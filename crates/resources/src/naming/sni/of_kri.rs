use super::is_destination;
use crate::naming::{
    Error, Kri, KriFields, ShortName,
    dns::{HOSTNAME_MAX, rfc1123_label_errors},
};

/// The KRI of a destination's port as a host name.
///
/// Only resources of a zone have their namespace in it: what is made on the global control plane has
/// the same SNI wherever that control plane runs.
pub fn from_kri(kri: &Kri) -> Result<String, Error> {
    if !is_destination(kri.short) {
        return Err(Error::NotADestination(kri.type_name()));
    }
    match violations(kri) {
        reasons if reasons.is_empty() => Ok(join(kri)),
        reasons => Err(Error::SniOfKri { kri: kri.to_string(), reasons }),
    }
}

/// Every reason why the KRI cannot be an SNI; none for types that have no SNI.
pub fn violations(kri: &Kri) -> Vec<String> {
    if !is_destination(kri.short) {
        return Vec::new();
    }
    if kri.mesh.is_empty() || kri.name.is_empty() || kri.section.is_empty() {
        return vec!["mesh, name and sectionName must be non-empty".to_owned()];
    }
    let mut found = Vec::new();
    let mut fields = vec![("mesh", &kri.mesh), ("name", &kri.name)];
    if !kri.zone.is_empty() {
        fields.push(("zone", &kri.zone));
        if !kri.namespace.is_empty() {
            fields.push(("namespace", &kri.namespace));
        }
    }
    for (field, value) in fields {
        let errors = rfc1123_label_errors(value);
        if !errors.is_empty() {
            found.push(format!("{field} {value:?} does not conform to RFC 1123: {}", errors.join("; ")));
        }
    }
    let errors = rfc1123_label_errors(&kri.section);
    if !errors.is_empty() {
        found.push(errors.join("; "));
    }
    let length = join(kri).len();
    if length > HOSTNAME_MAX {
        found.push(format!(
            "computed SNI is {length} characters which exceeds the DNS hostname limit ({HOSTNAME_MAX})"
        ));
    }
    found
}

/// Reads the KRI back; the number of segments says which fields are there.
pub fn to_kri(sni: &str) -> Result<Kri, Error> {
    let fail = |reason: String| Error::KriSni { sni: sni.to_owned(), reason };
    let segments: Vec<&str> = sni.split('.').collect();
    let (short, mesh, zone, namespace, name, section) = match *segments.as_slice() {
        ["sni", short, mesh, name, section] => (short, mesh, "", "", name, section),
        ["sni", short, mesh, zone, name, section] => (short, mesh, zone, "", name, section),
        ["sni", short, mesh, zone, namespace, name, section] => (short, mesh, zone, namespace, name, section),
        ["sni", ..] => return Err(fail(format!("expected 5, 6 or 7 segments, found {}", segments.len()))),
        _ => return Err(fail("the first segment must be \"sni\"".to_owned())),
    };
    let short: ShortName = short.parse().map_err(|error: Error| fail(error.to_string()))?;
    if !is_destination(short) {
        return Err(fail(Error::NotADestination(short.type_name()).to_string()));
    }
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(fail("a segment is empty".to_owned()));
    }
    let kri = Kri::from(KriFields {
        short,
        mesh: mesh.to_owned(),
        zone: zone.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        section: section.to_owned(),
    });
    match violations(&kri) {
        reasons if reasons.is_empty() => Ok(kri),
        reasons => Err(fail(reasons.join(", "))),
    }
}

fn join(kri: &Kri) -> String {
    let mut segments = vec!["sni", kri.short.as_str(), &kri.mesh];
    if !kri.zone.is_empty() {
        segments.push(&kri.zone);
        if !kri.namespace.is_empty() {
            segments.push(&kri.namespace);
        }
    }
    segments.extend([kri.name.as_str(), kri.section.as_str()]);
    segments.join(".")
}
