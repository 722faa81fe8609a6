//! Names and versions, each kept once: a thousand proxies have the same three thousand.

use std::collections::HashMap;

use bytes::Bytes;

/// Stands for a text.
pub type Id = u32;

#[derive(Debug, Default)]
pub struct Texts {
    ids: HashMap<Bytes, Id>,
    texts: Vec<Bytes>,
}

impl Texts {
    /// The text is copied when it is new, because a slice would keep the whole message it came in.
    pub fn id(&mut self, text: &[u8]) -> Id {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = Id::try_from(self.texts.len()).unwrap_or(Id::MAX);
        let text = Bytes::copy_from_slice(text);
        self.texts.push(text.clone());
        self.ids.insert(text, id);
        id
    }

    pub fn text(&self, id: Id) -> Bytes {
        self.texts.get(id as usize).cloned().unwrap_or_default()
    }

    pub fn all(&self, ids: impl IntoIterator<Item = Id>) -> Vec<Bytes> {
        ids.into_iter().map(|id| self.text(id)).collect()
    }
}
