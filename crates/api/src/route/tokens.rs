//! Rows of tokens.

use contract::tokens::{DataplaneTokenRequest, UserTokenRequest, ZoneTokenRequest};
use http::Method;

use super::{AccessRule, Answer, AuditedAction, Handler, Route, Schema, Tag};
use crate::{access, token};

pub fn rows() -> [Route; 3] {
    [
        Route {
            method: Method::POST,
            path: "/tokens/dataplane".into(),
            access: AccessRule::Right(access::GENERATE_DATAPLANE_TOKEN),
            audited: Some(AuditedAction { verb: "issue", kind: "DataplaneToken" }),
            tag: Tag::Tokens,
            summary: "Issue a token for a dataplane proxy".into(),
            query: Vec::new(),
            body: Some(Schema::of::<DataplaneTokenRequest>()),
            answer: Answer::Text,
            handler: Handler::waiting(token::dataplane),
        },
        Route {
            method: Method::POST,
            path: "/tokens/zone".into(),
            access: AccessRule::Right(access::GENERATE_ZONE_TOKEN),
            audited: Some(AuditedAction { verb: "issue", kind: "ZoneToken" }),
            tag: Tag::Tokens,
            summary: "Issue a token for a zone".into(),
            query: Vec::new(),
            body: Some(Schema::of::<ZoneTokenRequest>()),
            answer: Answer::Text,
            handler: Handler::waiting(token::zone),
        },
        Route {
            method: Method::POST,
            path: "/tokens/user".into(),
            access: AccessRule::Right(access::GENERATE_USER_TOKEN),
            audited: Some(AuditedAction { verb: "issue", kind: "UserToken" }),
            tag: Tag::Tokens,
            summary: "Issue a token for a user".into(),
            query: Vec::new(),
            body: Some(Schema::of::<UserTokenRequest>()),
            answer: Answer::Text,
            handler: Handler::waiting(token::user),
        },
    ]
}
