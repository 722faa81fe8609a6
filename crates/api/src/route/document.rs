//! The part of a row that the OpenAPI document shows.

use resources::Kind;
use schemars::{JsonSchema, SchemaGenerator};

/// Group of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    System,
    Kri,
    Tokens,
    Inspect,
    Kind(Kind),
}

impl Tag {
    pub fn name(self) -> &'static str {
        match self {
            Tag::System => "System",
            Tag::Kri => "KRI",
            Tag::Tokens => "Tokens",
            Tag::Inspect => "Inspect",
            Tag::Kind(kind) => kind.name(),
        }
    }
}

/// Parameter of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    /// JSON Schema's name of its type.
    pub r#type: &'static str,
}

impl Parameter {
    pub const fn text(name: &'static str) -> Parameter {
        Parameter { name, r#type: "string" }
    }

    pub const fn integer(name: &'static str) -> Parameter {
        Parameter { name, r#type: "integer" }
    }

    pub const fn boolean(name: &'static str) -> Parameter {
        Parameter { name, r#type: "boolean" }
    }
}

/// Part of a list.
pub const PAGE: [Parameter; 2] = [Parameter::integer("size"), Parameter::integer("offset")];
/// Part of a list, counted or after an item of it.
pub const PAGE_AFTER: [Parameter; 3] = [PAGE[0], PAGE[1], Parameter::text("after")];
/// Part of a list of things with names.
pub const NAMED_PAGE: [Parameter; 4] = [PAGE[0], PAGE[1], PAGE_AFTER[2], Parameter::text("name")];

/// Schema of a JSON document.
#[derive(Debug, Clone)]
pub enum Schema {
    /// Type of the contract.
    Type(fn(&mut SchemaGenerator) -> schemars::Schema),
    /// Type of the contract, or any other object.
    TypeOrObject(fn(&mut SchemaGenerator) -> schemars::Schema),
    Resource(Kind),
    Object,
    /// Part of a list.
    Page(Box<Schema>),
    /// Answer of inspection, which does not say where the next part of it is.
    Selection(Box<Schema>),
    /// A list that is not paged.
    Whole(Box<Schema>),
}

impl Schema {
    pub fn of<T: JsonSchema>() -> Schema {
        Schema::Type(|generator| generator.subschema_for::<T>())
    }

    pub fn of_or_object<T: JsonSchema>() -> Schema {
        Schema::TypeOrObject(|generator| generator.subschema_for::<T>())
    }

    pub fn page_of(item: Schema) -> Schema {
        Schema::Page(Box::new(item))
    }

    pub fn selection_of(item: Schema) -> Schema {
        Schema::Selection(Box::new(item))
    }

    pub fn whole_of(item: Schema) -> Schema {
        Schema::Whole(Box::new(item))
    }
}

/// Answer to a request that succeeds.
#[derive(Debug, Clone)]
pub enum Answer {
    Json(Schema),
    /// A list; or, if the query says so, one that goes on, a [`contract::watch::WatchEvent`] per line.
    Watchable(Schema),
    /// A list; or, if the caller accepts server-sent events, a stream of its items.
    Streamable(Schema),
    /// A resource, with its version as `ETag`.
    Versioned(Schema),
    /// That of a put, which `If-Match` may make depend on the version.
    Stored,
    /// That of a deletion, which `If-Match` may make depend on the version.
    Deleted,
    Text,
    TextOrJson(Schema),
    /// A JSON document per line.
    Lines,
}

impl Answer {
    pub fn json<T: JsonSchema>() -> Answer {
        Answer::Json(Schema::of::<T>())
    }

    /// True for a write that `If-Match` makes depend on what is stored.
    pub fn is_conditional(&self) -> bool {
        matches!(self, Answer::Stored | Answer::Deleted)
    }
}
