//! Ways to connect, and what is said when it does not work.

use store::{Error, Store};
use store_postgres::{Postgres, PostgresConfig, PostgresTls, TlsMode};
use testkit::postgres::{self, CLIENT_CERTIFICATE_DATABASE, Options, fresh_database, shared};

use crate::{config, connect, contents, create, unavailable};

/// The error of a connection that must not succeed contains all of these.
async fn refused(config: PostgresConfig, expect: &[&str]) {
    let refused = Postgres::connect(config.clone()).await.map(drop);
    let why = unavailable(refused);
    for part in expect {
        assert!(why.contains(part), "{part:?} is not in {why:?}");
    }
    assert!(!why.contains(&config.password), "the password is in {why:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_as_strict_as_its_mode() {
    let cluster = postgres::Postgres::start_with(Options { fsync: false, tls: true }).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let theirs = postgres::Certificates::generate(elsewhere.path(), "stranger").unwrap();
    let ours = cluster.certificates();
    let with = |mode, host: &str, ca: Option<&std::path::Path>| {
        let tls = PostgresTls { mode, ca_path: ca.map(Into::into), ..PostgresTls::default() };
        PostgresConfig { host: host.into(), tls, ..config(&cluster.database("postgres")) }
    };
    let works = async |config: PostgresConfig| {
        let store = Postgres::connect(config).await.unwrap();
        store.snapshot().unwrap();
        let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE application_name = 'kuma-cp'";
        assert_eq!(cluster.sql("postgres", encrypted).unwrap(), "t");
    };
    works(with(TlsMode::VerifyFull, "127.0.0.1", Some(&ours.ca))).await;
    works(with(TlsMode::VerifyFull, "localhost", Some(&ours.ca))).await;
    works(with(TlsMode::VerifyCa, "127.0.0.1", Some(&ours.ca))).await;
    works(with(TlsMode::VerifyNone, "127.0.0.1", None)).await;

    let wrong_ca = ["TLS handshake", "invalid peer certificate", "store.postgres.tls"];
    refused(with(TlsMode::VerifyFull, "127.0.0.1", Some(&theirs.ca)), &wrong_ca).await;
    refused(with(TlsMode::VerifyCa, "127.0.0.1", Some(&theirs.ca)), &wrong_ca).await;
    refused(with(TlsMode::VerifyFull, "127.0.0.1", None), &["store.postgres.tls.caPath"]).await;
    let missing = std::path::Path::new("/nowhere/ca.crt");
    refused(with(TlsMode::VerifyFull, "127.0.0.1", Some(missing)), &["/nowhere/ca.crt"]).await;

    let mut config = with(TlsMode::VerifyFull, "127.0.0.1", Some(&ours.ca));
    config.db_name = CLIENT_CERTIFICATE_DATABASE.into();
    refused(config.clone(), &["requires a valid client certificate"]).await;
    config.tls.cert_path = Some(ours.client.clone());
    refused(config.clone(), &["store.postgres.tls.certPath", "store.postgres.tls.keyPath"]).await;
    config.tls.key_path = Some(ours.client_key.clone());
    works(config).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_not_in_the_certificate_is_only_refused_by_verify_full() {
    let cluster = postgres::Postgres::start_with(Options { fsync: false, tls: true }).unwrap();
    // The client's certificate comes from the same authority and names no host at all.
    let files = cluster.certificates();
    for (from, to) in [(&files.client, &files.server), (&files.client_key, &files.server_key)] {
        std::fs::write(to, std::fs::read(from).unwrap()).unwrap();
    }
    cluster.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let with = |mode| {
        let tls = PostgresTls { mode, ca_path: Some(files.ca.clone()), ..PostgresTls::default() };
        PostgresConfig { tls, ..config(&cluster.database("postgres")) }
    };
    let deadline = std::time::Instant::now() + crate::PATIENCE;
    // The server takes a moment to read its new certificate.
    while Postgres::connect(with(TlsMode::VerifyFull)).await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "the server keeps its certificate");
    }
    refused(with(TlsMode::VerifyFull), &["TLS handshake", "certificate"]).await;
    Postgres::connect(with(TlsMode::VerifyCa)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_to_connect_say_what_to_check() {
    let database = fresh_database().unwrap();
    let right = config(&database);
    let wrong_password = PostgresConfig { password: "wrong-one".into(), ..right.clone() };
    refused(wrong_password, &["password authentication failed", "KUMA_STORE_POSTGRES_PASSWORD"]).await;
    let wrong_name = PostgresConfig { db_name: "missing".into(), ..right.clone() };
    refused(wrong_name, &["\"missing\" does not exist", "store.postgres.dbName"]).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap().port();
    drop(listener);
    let wrong_port = PostgresConfig { port: free, ..right.clone() };
    refused(wrong_port, &[&format!("127.0.0.1:{free}"), "refused", "store.postgres.port"]).await;
    let no_tls =
        PostgresConfig { tls: PostgresTls { mode: TlsMode::VerifyNone, ..PostgresTls::default() }, ..right };
    refused(no_tls, &["TLS", "store.postgres.tls"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = PostgresConfig {
        port: silent.local_addr().unwrap().port(),
        connection_timeout: std::time::Duration::from_millis(200),
        ..PostgresConfig::default()
    };
    let why = unavailable(Postgres::connect(config).await.map(drop));
    assert!(why.contains("no answer within 200ms") || why.contains("timeout"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_later_release_are_left_alone() {
    let database = fresh_database().unwrap();
    create(&connect(&database).await, "a").await;
    let sql = |sql: &str| shared().unwrap().sql(&database.name, sql).unwrap();
    sql("INSERT INTO kuma_rs.schema_migrations (version) VALUES (999)");
    let refused = Postgres::connect(config(&database)).await.map(drop);
    let Err(Error::Damaged(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("version 999") && why.contains("newer"), "{why}");
    sql("DELETE FROM kuma_rs.schema_migrations WHERE version = 999");
    assert_eq!(contents(&connect(&database).await).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_is_named() {
    let database = fresh_database().unwrap();
    create(&connect(&database).await, "broken").await;
    shared().unwrap().sql(&database.name, "UPDATE kuma_rs.resources SET spec = '{'").unwrap();
    let refused = Postgres::connect(config(&database)).await.map(drop);
    let Err(Error::Damaged(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("broken") && why.contains("spec"), "{why}");
}
