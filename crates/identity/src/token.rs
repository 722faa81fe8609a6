//! Tokens: JSON Web Tokens signed with RS256.
//!
//! Claims have Go's capitalised field names and are read whatever their capitalisation, as Go does.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use store::Snapshot;
use uuid::Uuid;

use crate::{
    Error,
    signing_key::{self, PublicKey, Purpose, SigningKey},
};

/// Time by which a token's validity begins before it is issued, for clocks that disagree.
const LEEWAY: Duration = Duration::from_secs(5);

/// A key is a secret, whose name is no longer than this.
const MAX_KEY_ID: usize = 253;
/// Limit of the characters shown of an algorithm that is not accepted.
const MAX_SHOWN: usize = 16;
/// Tokens that are valid for longer are worth a warning.
const LONG: Duration = Duration::from_secs(366 * 24 * 3600);

/// Claims of a dataplane proxy: each field that is set must match the proxy's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "PascalCase", deserialize = "lowercase"), default)]
pub struct DataplaneToken {
    pub name: String,
    pub mesh: String,
    pub tags: BTreeMap<String, Vec<String>>,
    #[serde(rename(serialize = "Type", deserialize = "type"))]
    pub proxy_type: String,
    pub workload: String,
    /// Not Kuma's, which skips it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Vec<String>>,
}

/// Claims of a zone's control plane or proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "PascalCase", deserialize = "lowercase"), default)]
pub struct ZoneToken {
    pub zone: String,
    /// `ingress`, `egress`, `cp`
    pub scope: Vec<String>,
}

/// Claims of a user of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "PascalCase", deserialize = "lowercase"), default)]
pub struct UserToken {
    pub name: String,
    pub groups: Vec<String>,
}

/// Advice for the person who asks for a token.
pub trait Advice {
    /// Warning that more holders than needed could use the token.
    fn scope_warning(&self) -> Option<String>;

    /// All warnings about a token that is valid for so long.
    fn warnings(&self, valid_for: Duration) -> Vec<String> {
        let days = valid_for.as_secs() / (24 * 3600);
        let long = (valid_for > LONG).then(|| {
            format!(
                "the token is valid for {days} days; if it leaks, only revoking it or replacing its signing key helps: \
                 ask for less (--valid-for 720h, or validFor)"
            )
        });
        self.scope_warning().into_iter().chain(long).collect()
    }
}

impl Advice for DataplaneToken {
    fn scope_warning(&self) -> Option<String> {
        let unnamed = self.name.is_empty() && self.workload.is_empty();
        let unscoped = unnamed && self.tags.is_empty() && self.labels.is_empty();
        unscoped.then(|| {
            format!(
                "any proxy of mesh {:?} can use the token: bind it to one with --name, --workload, --label or --tag",
                self.mesh
            )
        })
    }
}

impl Advice for ZoneToken {
    fn scope_warning(&self) -> Option<String> {
        let text = "any zone can use the token: bind it to one with --zone";
        self.zone.is_empty().then(|| text.to_owned())
    }
}

impl Advice for UserToken {
    fn scope_warning(&self) -> Option<String> {
        None
    }
}

/// The claims every token has.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Registered {
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<f64>,
    jti: String,
}

/// Signs a token that is valid for `valid_for` from `now` on. Needs no store, so a key file is enough.
pub fn issue<C: Serialize>(
    claims: &C,
    key: &SigningKey,
    now: Timestamp,
    valid_for: Duration,
) -> Result<String, Error> {
    if valid_for.is_zero() {
        return Err(Error::Lifetime);
    }
    let expires = now.checked_add(valid_for).map_err(|_| Error::Lifetime)?;
    let begins = now.saturating_sub(LEEWAY).map_err(|_| Error::Lifetime)?;
    let Ok(Value::Object(mut all)) = serde_json::to_value(claims) else {
        return Err(Error::Malformed("claims must be an object".to_owned()));
    };
    all.insert("exp".to_owned(), expires.as_second().into());
    all.insert("nbf".to_owned(), begins.as_second().into());
    all.insert("iat".to_owned(), now.as_second().into());
    all.insert("jti".to_owned(), Uuid::new_v4().to_string().into());
    let header = Header { kid: Some(key.kid.clone()), ..Header::new(Algorithm::RS256) };
    let signing = EncodingKey::from_rsa_der(key.pair.private_der());
    jsonwebtoken::encode(&header, &all, &signing).map_err(|_| Error::Crypto("signing a token"))
}

/// Verifies a token or says why it is invalid: key, signature, times, revocation, in this order.
pub fn validate<C: DeserializeOwned>(
    token: &str,
    purpose: Purpose<'_>,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<C, Error> {
    validate_until(token, purpose, snapshot, now).map(|(claims, _)| claims)
}

/// As [`validate`]; says when the token expires, too.
pub fn validate_until<C: DeserializeOwned>(
    token: &str,
    purpose: Purpose<'_>,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<(C, Option<Timestamp>), Error> {
    let kid = key_id(token)?;
    let key = signing_key::public(snapshot, purpose, &kid)?;
    let (claims, registered) = decode(token, &key, now)?;
    if signing_key::is_revoked(snapshot, purpose, &registered.jti) {
        return Err(Error::Revoked(registered.jti));
    }
    Ok((claims, registered.exp.map(instant)))
}

/// Signature and times alone, against a key that is already known; gives the token's id too.
pub fn validate_with<C: DeserializeOwned>(
    token: &str,
    key: &PublicKey,
    now: Timestamp,
) -> Result<(C, String), Error> {
    decode(token, key, now).map(|(claims, registered)| (claims, registered.jti))
}

fn decode<C: DeserializeOwned>(
    token: &str,
    key: &PublicKey,
    now: Timestamp,
) -> Result<(C, Registered), Error> {
    key_id(token)?;
    let mut rules = Validation::new(Algorithm::RS256);
    // Times are checked below, against the caller's clock.
    rules.validate_exp = false;
    rules.validate_aud = false;
    rules.required_spec_claims.clear();
    let decoded: Map<String, Value> =
        jsonwebtoken::decode(token.trim(), &DecodingKey::from_rsa_der(key.der()), &rules)
            .map_err(|error| match error.kind() {
                jsonwebtoken::errors::ErrorKind::InvalidSignature => Error::Signature,
                // The error may quote the token.
                _ => Error::Malformed("a part of it is not JSON in base64url".to_owned()),
            })?
            .claims;
    let lowercase = decoded.into_iter().map(|(name, value)| (name.to_lowercase(), value));
    // Go writes null for empty lists and maps.
    let claims: Map<String, Value> = lowercase.filter(|(_, value)| !value.is_null()).collect();
    let registered: Registered = shape(Value::Object(claims.clone()))?;
    check_times(&registered, now)?;
    Ok((shape(Value::Object(claims))?, registered))
}

/// The mesh that a token says it is for. Nothing is verified, so this only tells whose keys to verify it with.
pub fn claimed_mesh(token: &str) -> Option<String> {
    let mesh = unverified(token, "mesh")?;
    mesh.as_str().filter(|mesh| !mesh.is_empty()).map(str::to_owned)
}

/// The labels that a token says it binds, for the client that asked for it. Nothing is verified.
pub fn claimed_labels(token: &str) -> BTreeMap<String, Vec<String>> {
    let labels = unverified(token, "labels").and_then(|labels| serde_json::from_value(labels).ok());
    labels.unwrap_or_default()
}

fn unverified(token: &str, claim: &str) -> Option<Value> {
    let payload = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: Map<String, Value> = serde_json::from_slice(&payload).ok()?;
    claims.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(claim)).map(|(_, value)| value)
}

/// The id of the key a token names. Nothing else in the token is verified yet.
fn key_id(token: &str) -> Result<String, Error> {
    let token = token.trim();
    if token.is_empty() {
        return Err(Error::Missing);
    }
    let malformed = |reason: &str| Error::Malformed(reason.to_owned());
    let parts: Vec<&str> = token.split('.').collect();
    let [header, _, _] = parts.as_slice() else {
        return Err(malformed("expected three parts separated by dots"));
    };
    let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| malformed("the header is not base64url"))?;
    let header: Value = serde_json::from_slice(&header).map_err(|_| malformed("the header is not JSON"))?;
    match header.get("alg").and_then(Value::as_str) {
        Some("RS256") => {}
        other => return Err(Error::Algorithm(other.unwrap_or_default().chars().take(MAX_SHOWN).collect())),
    }
    match header.get("kid").and_then(Value::as_str) {
        Some(kid) if kid.len() <= MAX_KEY_ID => Ok(kid.to_owned()),
        Some(_) => Err(malformed("the id of its key (kid) is too long")),
        None => Err(malformed("the header names no key (kid)")),
    }
}

fn shape<T: DeserializeOwned>(claims: Value) -> Result<T, Error> {
    // The error may quote what a claim holds.
    serde_json::from_value(claims)
        .map_err(|_| Error::Malformed("a claim has a value of the wrong type".to_owned()))
}

fn instant(seconds: f64) -> Timestamp {
    // Beyond what a timestamp holds is as good as the edge of it.
    #[allow(clippy::cast_possible_truncation, reason = "`as` saturates, and fractions do not matter")]
    let whole = seconds as i64;
    Timestamp::from_second(whole).unwrap_or(if whole < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

fn check_times(claims: &Registered, now: Timestamp) -> Result<(), Error> {
    if let Some(expires) = claims.exp.map(instant)
        && now >= expires
    {
        return Err(Error::Expired(expires));
    }
    match claims.nbf.map(instant) {
        Some(begins) if now < begins => Err(Error::NotYetValid(begins)),
        _ => Ok(()),
    }
}
