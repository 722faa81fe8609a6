//! Content that Kuma's own control plane leaves in a database.

/// Its tables after all migrations of 2.14, without rows.
pub const TABLES: &str = "
    CREATE TABLE schema_migrations (version bigint PRIMARY KEY, dirty boolean NOT NULL);
    INSERT INTO schema_migrations VALUES (1710856785, false);
    CREATE TABLE resources (
        name varchar(253) NOT NULL, mesh varchar(100) NOT NULL, type varchar(100) NOT NULL,
        version integer NOT NULL, spec text,
        creation_time timestamp NOT NULL DEFAULT now(), modification_time timestamp NOT NULL DEFAULT now(),
        owner_name varchar(100), owner_mesh varchar(100), owner_type varchar(100),
        labels jsonb DEFAULT '{}', status jsonb NOT NULL DEFAULT '{}',
        CONSTRAINT resources_pkey PRIMARY KEY (name, mesh, type),
        CONSTRAINT owner_fk FOREIGN KEY (owner_name, owner_mesh, owner_type)
            REFERENCES resources (name, mesh, type) ON DELETE CASCADE);";
