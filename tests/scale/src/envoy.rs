//! A simulated Envoy: what it has, what it acknowledges, what it asks for next.
//!
//! It subscribes as Envoy does: all clusters, then the endpoints and secrets these name, then all
//! listeners once the endpoints are there. It keeps no configuration, only names, versions and a hash of
//! each content, so thousands fit into one process. No clock, no socket: bytes in, bytes out.

use std::collections::{HashMap, HashSet};

use anyhow::Context;
use bytes::Bytes;
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    scan,
    texts::{Id, Texts},
    wire::{
        Any, DeltaRequest, DeltaResponse, Kind, MapEntry, RpcStatus, WireResource, WorldRequest,
        WorldResponse,
    },
};

/// Variant of the protocol that it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, serde::Serialize)]
pub enum Variant {
    /// Changes only.
    #[default]
    Delta,
    /// The state of the world each time.
    World,
}

#[derive(Debug)]
pub struct Envoy {
    variant: Variant,
    /// The encoded `Node`, sent with the first request of a stream.
    node: Bytes,
    /// Secrets it asks for when a cluster or a listener names them.
    secrets: Vec<Bytes>,
    types: [Type; Kind::ALL.len()],
    /// The name each cluster asks for its endpoints with.
    endpoints_of: HashMap<Id, Id>,
    /// Endpoints that must come again although they did not change, because their cluster did.
    warming: HashSet<Id>,
}

#[derive(Debug, Default)]
struct Type {
    asked: bool,
    /// Subscribed names; empty for clusters and listeners, of which it wants all.
    names: HashSet<Id>,
    has: HashMap<Id, Content>,
    version: Bytes,
    nonce: Bytes,
}

#[derive(Debug, Clone, Copy)]
struct Content {
    version: Id,
    hash: u64,
}

/// Outcome of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseOutcome {
    pub kind: Kind,
    /// Encoded requests to send, the acknowledgement first.
    pub requests: Vec<Bytes>,
    pub resources: usize,
    /// Bytes of the smallest response that would have done: without what the proxy had already.
    pub needed: usize,
}

/// One resource of a response, or the name of one that is gone.
pub struct Item {
    pub name: Bytes,
    pub version: Bytes,
    /// `None` when it is removed.
    pub body: Option<Bytes>,
    /// Number of bytes of the response that it takes.
    length: usize,
}

struct Update {
    kind: Kind,
    nonce: Bytes,
    version: Bytes,
    items: Vec<Item>,
    /// Everything but the items.
    overhead: usize,
}

impl Envoy {
    pub fn new(variant: Variant, node: Bytes, secrets: Vec<Bytes>) -> Envoy {
        Envoy {
            variant,
            node,
            secrets,
            types: Default::default(),
            endpoints_of: HashMap::new(),
            warming: HashSet::new(),
        }
    }

    /// Forgets everything, as a proxy that was restarted.
    pub fn forget(&mut self) {
        *self = Envoy::new(self.variant, self.node.clone(), std::mem::take(&mut self.secrets));
    }

    /// The first requests of a stream: for all it knows already, or for clusters.
    pub fn opening(&mut self, texts: &Texts) -> Vec<Bytes> {
        self.types[Kind::Cluster as usize].asked = true;
        let mut requests = Vec::new();
        for kind in Kind::ALL {
            let asked = &mut self.types[kind as usize];
            if asked.asked {
                asked.nonce = Bytes::new();
                let node = if requests.is_empty() { self.node.clone() } else { Bytes::new() };
                let names: Vec<Id> = self.types[kind as usize].names.iter().copied().collect();
                requests.push(self.ask(kind, node, &names, &[], texts));
            }
        }
        requests
    }

    /// Returns the number of destinations that it can call: their clusters, endpoints and listeners are
    /// there.
    pub fn destinations(&self) -> usize {
        let endpoints = &self.types[Kind::Endpoint as usize];
        let listeners = self.types[Kind::Listener as usize].has.len();
        let secrets = &self.types[Kind::Secret as usize];
        let complete = endpoints.has.len() >= endpoints.names.len()
            && secrets.has.len() >= secrets.names.len()
            && listeners > 0;
        if complete { endpoints.has.len().min(listeners) } else { 0 }
    }

    /// Returns the number of its resources.
    pub fn resources(&self) -> usize {
        self.types.iter().map(|of| of.has.len()).sum()
    }

    /// Takes a response in and acknowledges it; `look` sees every resource in it.
    pub fn take(
        &mut self,
        raw: &Bytes,
        texts: &mut Texts,
        mut look: impl FnMut(Kind, &Item),
    ) -> anyhow::Result<ResponseOutcome> {
        let update = self.parse(raw, texts)?;
        let kind = update.kind;
        let mut changed = false;
        let mut needed = update.overhead;
        let mut next = Next::default();
        for item in &update.items {
            look(kind, item);
            if self.keep(kind, item, texts, &mut next) {
                changed = true;
                needed += item.length;
            }
        }
        let of = &mut self.types[kind as usize];
        (of.nonce, of.version) = (update.nonce, update.version);
        let mut requests = vec![self.answer(kind, None, texts)];
        self.follow(next, texts, &mut requests);
        let needed = if changed { needed } else { 0 };
        Ok(ResponseOutcome { kind, requests, resources: update.items.len(), needed })
    }

    /// Rejects a response: nothing of it is kept.
    pub fn reject(&mut self, raw: &Bytes, texts: &mut Texts) -> anyhow::Result<ResponseOutcome> {
        let update = self.parse(raw, texts)?;
        self.types[update.kind as usize].nonce = update.nonce;
        let error = RpcStatus { code: 13, message: "rejected on purpose by a simulated proxy".to_owned() };
        let requests = vec![self.answer(update.kind, Some(error), texts)];
        Ok(ResponseOutcome { kind: update.kind, requests, resources: update.items.len(), needed: raw.len() })
    }

    fn parse(&self, raw: &Bytes, texts: &Texts) -> anyhow::Result<Update> {
        match self.variant {
            Variant::Delta => parse_delta(raw),
            Variant::World => {
                let mut update = parse_world(raw)?;
                // Clusters and listeners that are not in the state of the world are gone.
                if matches!(update.kind, Kind::Cluster | Kind::Listener) {
                    let named: HashSet<&[u8]> = update.items.iter().map(|item| &*item.name).collect();
                    let has = self.types[update.kind as usize].has.keys();
                    let gone: Vec<Bytes> =
                        has.map(|id| texts.text(*id)).filter(|name| !named.contains(&**name)).collect();
                    update.items.extend(gone.into_iter().map(Item::removed));
                }
                Ok(update)
            }
        }
    }

    /// Stores an item. Returns true if it was news.
    fn keep(&mut self, kind: Kind, item: &Item, texts: &mut Texts, next: &mut Next) -> bool {
        let id = texts.id(&item.name);
        let Some(body) = &item.body else {
            let was_there = self.types[kind as usize].has.remove(&id).is_some();
            if kind == Kind::Cluster {
                next.unsubscribe.extend(self.endpoints_of.remove(&id));
            }
            return was_there;
        };
        let content = Content { version: texts.id(&item.version), hash: xxh3_64(body) };
        let before = self.types[kind as usize].has.insert(id, content);
        let mut news = before.is_none_or(|before| before.hash != content.hash);
        match kind {
            Kind::Cluster => {
                if let Some(endpoints) = scan::endpoints_of(body) {
                    let endpoints = texts.id(endpoints);
                    if self.endpoints_of.insert(id, endpoints) != Some(endpoints) {
                        next.subscribe.push(endpoints);
                    } else if news {
                        self.warming.insert(endpoints);
                    }
                }
                self.find_secrets(body, texts, next);
            }
            Kind::Listener => self.find_secrets(body, texts, next),
            Kind::Endpoint => news |= self.warming.remove(&id),
            Kind::Secret | Kind::Route => {}
        }
        news
    }

    fn find_secrets(&self, body: &[u8], texts: &mut Texts, next: &mut Next) {
        let asked = &self.types[Kind::Secret as usize].names;
        // Once it has asked for both there is nothing left to find.
        if asked.len() + next.secrets.len() >= 2 {
            return;
        }
        for secret in &self.secrets {
            let id = texts.id(secret);
            if !asked.contains(&id)
                && !next.secrets.contains(&id)
                && memchr::memmem::find(body, secret).is_some()
            {
                next.secrets.push(id);
            }
        }
    }

    /// Asks for what the response has made necessary.
    fn follow(&mut self, next: Next, texts: &Texts, requests: &mut Vec<Bytes>) {
        for (kind, subscribe, unsubscribe) in
            [(Kind::Endpoint, next.subscribe, next.unsubscribe), (Kind::Secret, next.secrets, Vec::new())]
        {
            if subscribe.is_empty() && unsubscribe.is_empty() {
                continue;
            }
            let of = &mut self.types[kind as usize];
            of.asked = true;
            for name in &unsubscribe {
                of.names.remove(name);
                of.has.remove(name);
            }
            of.names.extend(&subscribe);
            requests.push(self.ask(kind, Bytes::new(), &subscribe, &unsubscribe, texts));
        }
        let endpoints = &self.types[Kind::Endpoint as usize];
        if !self.types[Kind::Listener as usize].asked
            && endpoints.names.iter().all(|name| endpoints.has.contains_key(name))
        {
            self.types[Kind::Listener as usize].asked = true;
            requests.push(self.ask(Kind::Listener, Bytes::new(), &[], &[], texts));
        }
    }

    fn answer(&self, kind: Kind, error: Option<RpcStatus>, texts: &Texts) -> Bytes {
        let of = &self.types[kind as usize];
        let type_url = Bytes::from_static(kind.url().as_bytes());
        let nonce = of.nonce.clone();
        let encoded = match self.variant {
            Variant::Delta => DeltaRequest { type_url, nonce, error, ..Default::default() }.encode_to_vec(),
            Variant::World => {
                let names = texts.all(of.names.iter().copied());
                let version = of.version.clone();
                WorldRequest { version, node: Bytes::new(), names, type_url, nonce, error }.encode_to_vec()
            }
        };
        encoded.into()
    }

    fn ask(&self, kind: Kind, node: Bytes, subscribe: &[Id], unsubscribe: &[Id], texts: &Texts) -> Bytes {
        let of = &self.types[kind as usize];
        let type_url = Bytes::from_static(kind.url().as_bytes());
        let encoded = match self.variant {
            Variant::Delta => {
                // Envoy tells what it has when it opens a stream, and never again.
                let opening = of.nonce.is_empty();
                let known = of.has.iter().filter(|_| opening);
                let entry = |(name, content): (&Id, &Content)| MapEntry {
                    key: texts.text(*name),
                    value: texts.text(content.version),
                };
                DeltaRequest {
                    node,
                    type_url,
                    subscribe: texts.all(subscribe.iter().copied()),
                    unsubscribe: texts.all(unsubscribe.iter().copied()),
                    initial_versions: known.map(entry).collect(),
                    ..Default::default()
                }
                .encode_to_vec()
            }
            Variant::World => {
                let names = texts.all(of.names.iter().copied());
                let version = of.version.clone();
                let nonce = of.nonce.clone();
                WorldRequest { version, node, names, type_url, nonce, error: None }.encode_to_vec()
            }
        };
        encoded.into()
    }
}

/// Requests that a response makes necessary.
#[derive(Default)]
struct Next {
    subscribe: Vec<Id>,
    unsubscribe: Vec<Id>,
    secrets: Vec<Id>,
}

impl Item {
    fn removed(name: Bytes) -> Item {
        Item { length: name.len(), name, version: Bytes::new(), body: None }
    }
}

fn kind_of(url: &Bytes) -> anyhow::Result<Kind> {
    let unknown =
        || format!("a response of type {:?}, which was not asked for", String::from_utf8_lossy(url));
    Kind::by_url(url).with_context(unknown)
}

fn parse_delta(raw: &Bytes) -> anyhow::Result<Update> {
    let response = DeltaResponse::decode(raw.clone())?;
    let mut items = Vec::with_capacity(response.resources.len() + response.removed.len());
    for encoded in response.resources {
        let length = encoded.len();
        let WireResource { name, version, any } = WireResource::decode(encoded)?;
        items.push(Item { name, version, body: Some(any.unwrap_or_default().value), length });
    }
    items.extend(response.removed.into_iter().map(Item::removed));
    let carried: usize = items.iter().map(|item| item.length).sum();
    let kind = kind_of(&response.type_url)?;
    let overhead = raw.len().saturating_sub(carried);
    // Copied, because a slice would keep the whole response until the next one.
    let nonce = Bytes::copy_from_slice(&response.nonce);
    Ok(Update { kind, nonce, version: Bytes::new(), items, overhead })
}

fn parse_world(raw: &Bytes) -> anyhow::Result<Update> {
    let response = WorldResponse::decode(raw.clone())?;
    let mut items = Vec::with_capacity(response.resources.len());
    for encoded in response.resources {
        let length = encoded.len();
        let body = Any::decode(encoded)?.value;
        let name = body.slice_ref(scan::name(&body).unwrap_or_default());
        items.push(Item { name, version: Bytes::new(), body: Some(body), length });
    }
    let carried: usize = items.iter().map(|item| item.length).sum();
    let kind = kind_of(&response.type_url)?;
    let overhead = raw.len().saturating_sub(carried);
    let nonce = Bytes::copy_from_slice(&response.nonce);
    let version = Bytes::copy_from_slice(&response.version);
    Ok(Update { kind, nonce, version, items, overhead })
}

#[cfg(test)]
mod tests;
