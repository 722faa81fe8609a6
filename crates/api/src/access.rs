//! The calling user, the user's rights, and the rules of routes.

use std::fmt;

use resources::Kind;

use crate::{
    Error,
    call::Call,
    resource,
    settings::{AccessRights, Allowed, Authn, names},
};

/// Right that the configuration gives to users (`access.static`).
#[derive(Clone, Copy)]
pub struct Right {
    allowed: fn(&AccessRights) -> &Allowed,
    /// Completes "user … cannot …".
    action: &'static str,
}

pub const CONTROL_PLANE_METADATA: Right =
    Right { allowed: |access| &access.control_plane_metadata, action: "access the control plane config" };
pub const BACK_UP: Right =
    Right { allowed: |access| &access.admin_resources, action: "back up the control plane" };
pub const GENERATE_DATAPLANE_TOKEN: Right =
    Right { allowed: |access| &access.generate_dataplane_token, action: "generate dataplane token" };
pub const GENERATE_ZONE_TOKEN: Right =
    Right { allowed: |access| &access.generate_zone_token, action: "generate zone token" };
pub const GENERATE_USER_TOKEN: Right =
    Right { allowed: |access| &access.generate_user_token, action: "generate user token" };
pub const VIEW_CONFIG_DUMP: Right =
    Right { allowed: |access| &access.view_config_dump, action: "view envoy config dump" };
pub const VIEW_STATS: Right = Right { allowed: |access| &access.view_stats, action: "view stats" };
pub const VIEW_CLUSTERS: Right = Right { allowed: |access| &access.view_clusters, action: "view clusters" };
pub const VIEW_LOG_LEVELS: Right =
    Right { allowed: |access| &access.view_config_dump, action: "view log levels" };
/// A proxy that logs everything can fill a disk and names what is called, so only administrators may.
pub const CHANGE_LOG_LEVELS: Right =
    Right { allowed: |access| &access.admin_resources, action: "change log levels of proxies" };

impl Right {
    /// Checks that the user of a call has the right.
    pub fn check(&self, call: &Call) -> Result<(), Error> {
        check_action(&call.user, (self.allowed)(&call.context.settings.access), self.action)
    }
}

/// Callers that a route answers.
pub enum AccessRule {
    /// Every caller.
    Anyone,
    Right(Right),
    /// Those who may read all these kinds. The mesh of the path must exist.
    Read(Vec<Kind>),
    /// Those who may write the kind, where and while it can be written. The mesh of the path must exist.
    Write(Kind),
    /// Depends on the question.
    Asked(CheckQuestion),
}

type CheckQuestion = Box<dyn Fn(&Call) -> Result<(), Error> + Send + Sync>;

impl AccessRule {
    pub fn asked(check: impl Fn(&Call) -> Result<(), Error> + Send + Sync + 'static) -> AccessRule {
        AccessRule::Asked(Box::new(check))
    }

    /// Checks that a call may be answered.
    pub fn check(&self, call: &Call) -> Result<(), Error> {
        match self {
            AccessRule::Anyone => Ok(()),
            AccessRule::Right(right) => right.check(call),
            AccessRule::Read(kinds) => {
                call.check_mesh()?;
                kinds.iter().try_for_each(|kind| call.check_access(*kind))
            }
            AccessRule::Write(kind) => resource::check_access(call, *kind),
            AccessRule::Asked(check) => check(call),
        }
    }
}

/// The user behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// True if a user has the right to administer.
pub fn is_administrator(user: &User, access: &AccessRights) -> bool {
    user.is_among(&access.admin_resources)
}

/// Checks that a user may see resources of a kind.
pub fn check_read_kind(user: &User, kind: Kind, access: &AccessRights) -> Result<(), Error> {
    check_kind(user, kind, kind.descriptor().administered.covers_reads(), access)
}

/// Checks that a user may write and delete resources of a kind.
pub fn check_write_kind(user: &User, kind: Kind, access: &AccessRights) -> Result<(), Error> {
    check_kind(user, kind, kind.descriptor().administered.covers_writes(), access)
}

fn check_kind(user: &User, kind: Kind, administered: bool, access: &AccessRights) -> Result<(), Error> {
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

/// Checks that a user may write at all: where authentication is required for writes, only authenticated users
/// may.
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

/// Checks that a user may do something that is not about a kind; `action` completes "cannot …".
pub fn check_action(user: &User, allowed: &Allowed, action: &str) -> Result<(), Error> {
    if user.is_among(allowed) {
        return Ok(());
    }
    let user = user.to_string();
    Err(Error::AccessDenied(format!("user {user:?} cannot {action}")))
}
