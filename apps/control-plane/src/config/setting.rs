//! The choices of settings of the whole process.

use settings::choice;
pub use settings::{Password, Setting};

choice! {
    /// Platform of the control plane.
    pub enum Environment { Universal = "universal", Kubernetes = "kubernetes" }
}

choice! {
    /// Role of the control plane.
    pub enum Mode { Zone = "zone", Global = "global", Standalone = "standalone" }
}

choice! {
    /// The stores of resources.
    pub enum StoreType {
        Sqlite = "sqlite",
        Memory = "memory",
        Postgres = "postgres",
        Kubernetes = "kubernetes",
    }
}

choice! {
    /// Protection of the connection to PostgreSQL.
    pub enum PostgresTls {
        Disable = "disable",
        VerifyNone = "verifyNone",
        VerifyCa = "verifyCa",
        VerifyFull = "verifyFull",
    }
}

choice! {
    /// Credentials of the API's users.
    pub enum AuthnType { Tokens = "tokens", AdminClientCerts = "adminClientCerts" }
}
