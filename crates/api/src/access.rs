//! Which user calls, and what the user may do.

use std::fmt;

use resources::Kind;
use serde::Serialize;

use crate::{
    Error,
    settings::{Access, Allowed, Authn, names},
};

/// The user behind a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

impl User {
    pub fn admin() -> Self {
        User { name: names::ADMIN.into(), groups: vec![names::ADMIN.into(), names::AUTHENTICATED.into()] }
    }

    pub fn anonymous() -> Self {
        User { name: names::ANONYMOUS.into(), groups: vec![names::UNAUTHENTICATED.into()] }
    }

    /// Somebody whose token was good.
    pub fn authenticated(name: String, mut groups: Vec<String>) -> Self {
        groups.push(names::AUTHENTICATED.into());
        User { name, groups }
    }

    fn is_among(&self, allowed: &Allowed) -> bool {
        allowed.users.contains(&self.name) || self.groups.iter().any(|group| allowed.groups.contains(group))
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.groups.join(","))
    }
}

/// Checks that a user may see resources of a kind.
pub fn check_read_kind(user: &User, kind: Kind, access: &Access) -> Result<(), Error> {
    check_kind(user, kind, kind.descriptor().administered.covers_reads(), access)
}

/// Checks that a user may write and delete resources of a kind.
pub fn check_write_kind(user: &User, kind: Kind, access: &Access) -> Result<(), Error> {
    check_kind(user, kind, kind.descriptor().administered.covers_writes(), access)
}

fn check_kind(user: &User, kind: Kind, administered: bool, access: &Access) -> Result<(), Error> {
    if !administered || user.is_among(&access.admin_resources) {
        return Ok(());
    }
    let user = user.to_string();
    let name = kind.name();
    // In Kuma's words where Kuma refuses, too.
    if kind.descriptor().administered.covers_reads() {
        return Err(Error::AccessDenied(format!(
            "user {user:?} cannot access the resource of type {name:?}"
        )));
    }
    Err(Error::AccessDenied(format!(
        "user {user:?} cannot write the resource of type {name:?}: it decides who workloads are, which takes the right \
         to administer (access.static.adminResources)"
    )))
}

/// Whether a user may write at all: where that is asked for, only those who say who they are.
pub fn check_write(user: &User, authn: &Authn) -> Result<(), Error> {
    if !authn.require_for_writes || user.groups.iter().any(|group| group == names::AUTHENTICATED) {
        return Ok(());
    }
    let user = user.to_string();
    Err(Error::AccessDenied(format!(
        "user {user:?} cannot write: this control plane requires authentication (apiServer.authn.requireForWrites); \
         send a user token"
    )))
}

/// Whether a user may do something that is not about a kind; `action` completes "cannot …".
pub fn check_action(user: &User, allowed: &Allowed, action: &str) -> Result<(), Error> {
    if user.is_among(allowed) {
        return Ok(());
    }
    let user = user.to_string();
    Err(Error::AccessDenied(format!("user {user:?} cannot {action}")))
}
