//! Lists of the REST API come in pages; this reads one, or all of them.

use contract::lenient::read_partly;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    client::{ApiClient, read_as},
    failure::{Failure, Result},
};

/// As many as the REST API gives at once.
const LARGEST_PAGE: u32 = 1000;

/// So many pages are no list of a control plane, which fills them.
const MOST_PAGES: usize = 10_000;
/// So large are all pages of a list together at most.
const MOST_BYTES: usize = 512 * 1024 * 1024;

/// Items of a list, as the control plane has them now.
pub struct ListedItems {
    pub items: Vec<Value>,
    pub total: u64,
    pub next_offset: Option<u64>,
    pub revision: Option<String>,
    /// Size of the answers that it was read from.
    pub bytes: usize,
    /// Further fields of the last page.
    pub rest: Value,
}

impl ListedItems {
    /// Everything there is.
    pub fn complete(items: Vec<Value>) -> ListedItems {
        let total = items.len() as u64;
        ListedItems { items, total, next_offset: None, revision: None, bytes: 0, rest: Value::Null }
    }

    /// The part of what was found that a user asks for.
    #[must_use]
    pub fn cut(self, size: Option<u32>, from: u64) -> ListedItems {
        let total = self.items.len() as u64;
        let most = usize::try_from(size.unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let items: Vec<Value> = self.items.into_iter().skip(skipped).take(most).collect();
        let next = from.saturating_add(items.len() as u64);
        let next_offset = (next < total && !items.is_empty()).then_some(next);
        ListedItems { items, total, next_offset, ..self }
    }

    /// The items as a type.
    pub fn read<T: DeserializeOwned>(&self, attempted: &str) -> Result<Vec<T>> {
        self.items.iter().map(|item| read_as(item, attempted)).collect()
    }

    /// As the REST API says it, with an offset in place of an address.
    pub fn to_json(&self) -> Value {
        json!({ "total": self.total, "items": self.items, "next": self.next_offset })
    }
}

/// The fields of a page beside its items.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageEnd {
    /// A link, if there is another page.
    next: Option<Value>,
    total: Option<u64>,
}

/// A list, and how it is read.
pub struct PagedList<'a> {
    pub path: &'a str,
    /// Further parts of the query; they start with `&`.
    pub filters: &'a str,
    /// Number of items per request.
    pub page_size: u32,
    /// Text about the failure, where the list cannot be read.
    pub attempted: String,
}

impl<'a> PagedList<'a> {
    pub fn of(path: &'a str, filters: &'a str) -> PagedList<'a> {
        let attempted = format!("could not list {}", path.trim_start_matches('/'));
        PagedList { path, filters, page_size: LARGEST_PAGE, attempted }
    }

    /// Everything in it.
    pub fn all(&self, client: &ApiClient) -> Result<ListedItems> {
        self.read(client, 0, true)
    }

    /// Reads from the offset on: everything, or one page.
    fn read(&self, client: &ApiClient, from: u64, all: bool) -> Result<ListedItems> {
        let PagedList { path, filters, page_size, attempted } = self;
        let mut offset = from;
        let mut after = String::new();
        let mut items = Vec::new();
        let mut bytes: usize = 0;
        for _ in 0..MOST_PAGES {
            let skipped = if offset > 0 { format!("{after}&offset={offset}") } else { String::new() };
            let answer = client.get(&format!("{path}?size={page_size}{skipped}{filters}"))?;
            bytes = bytes.saturating_add(answer.body.len());
            if bytes > MOST_BYTES {
                break;
            }
            let revision = answer.revision.clone();
            let mut page = answer.json(attempted)?;
            let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) else {
                return Err(Failure::failed(format!("{attempted}: the answer has no items")));
            };
            let PageEnd { next, total } = read_partly(&page);
            let more = next.is_some() && !found.is_empty();
            offset += found.len() as u64;
            let next = cursor(next.as_ref().and_then(Value::as_str).unwrap_or_default());
            if more && all && !next.is_empty() && next == after {
                return Err(Failure::failed(format!(
                    "{attempted}: the list does not end: the control plane names the same next page twice"
                )));
            }
            after = next;
            items.extend(found);
            if !all || !more {
                let total = total.unwrap_or(items.len() as u64);
                let next_offset = more.then_some(offset);
                return Ok(ListedItems { items, total, next_offset, revision, bytes, rest: page });
            }
        }
        Err(Failure::failed(format!(
            "{attempted}: the list does not end: it has more than {MOST_PAGES} pages or {MOST_BYTES} bytes; is there a \
             control plane at this address?"
        )))
    }
}

/// Everything in a collection.
pub fn all(client: &ApiClient, collection: &str, filters: &str) -> Result<ListedItems> {
    PagedList::of(collection, filters).all(client)
}

/// One page if a size is given, else everything from the offset on. `filters` start with `&`.
pub fn read(
    client: &ApiClient,
    collection: &str,
    filters: &str,
    size: Option<u32>,
    from: u64,
) -> Result<ListedItems> {
    let list = PagedList::of(collection, filters);
    let page_size = size.unwrap_or(list.page_size);
    PagedList { page_size, ..list }.read(client, from, size.is_none())
}

/// Position of the next page, whatever comes and goes meanwhile; nothing if the control plane knows offsets
/// only. `next` is a link, of which the query is taken: its host is one that the control plane has made up.
fn cursor(next: &str) -> String {
    let query = next.split_once('?').map_or("", |(_, query)| query);
    let after = query.split('&').find(|pair| pair.starts_with("after="));
    after.map(|after| format!("&{after}")).unwrap_or_default()
}
