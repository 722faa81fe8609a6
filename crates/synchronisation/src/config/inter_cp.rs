//! The settings of requests between instances of a control plane.

use settings::section;

section! {
    /// Several instances of a control plane on one PostgreSQL.
    pub struct InterCp {
        section catalog: Catalog, "catalog";
        section server: InterCpServer, "server";
    }
}

section! {
    /// Address of this instance for the others.
    pub struct Catalog {
        /// The address at which other instances reach this one; empty means the address from which it reaches the
        /// database.
        instance_address: String = String::new(), "instanceAddress", "KUMA_INTER_CP_CATALOG_INSTANCE_ADDRESS";
    }
}

section! {
    /// The server for other instances.
    pub struct InterCpServer {
        /// Port for other instances, open where `store.type` is `postgres`; 0 means any free one.
        port: u16 = 5683, "port", "KUMA_INTER_CP_SERVER_PORT";
    }
}
