use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use identity::{
    Authority, Error,
    ca::CertificateAuthorityError,
    workload::{Certificate, CertificateRequest, IssuedCertificate, Issuer},
};
use jiff::{Timestamp, ToSpan};
use resources::{Key, Kind};
use serde_json::json;
use store::Snapshot;
use testkit::build::mesh;

use crate::{
    ca::{builtin_mesh, with_roots},
    noon, snapshot,
    workload::{names_of_web, web},
};

fn load(stored: &Snapshot, backend: &str) -> Arc<Authority> {
    Arc::new(Authority::load(stored, "default", backend, noon()).unwrap())
}

/// One that keeps certificates as they are signed.
type Whole = Issuer<Arc<Certificate>>;

fn whole(certificate: &Certificate) -> Arc<Certificate> {
    Arc::new(certificate.clone())
}

fn ask(
    issuer: &Whole,
    authority: &Arc<Authority>,
    names: &[String],
    now: Timestamp,
) -> IssuedCertificate<Arc<Certificate>> {
    let proxy = web("default");
    let backend = &**authority.backend();
    let wanted = CertificateRequest {
        proxy: &proxy,
        place: "identity",
        mesh: "default",
        backend,
        names,
        fresh_key: None,
    };
    issuer.certificate_for(wanted, || Ok(authority.clone()), now, 0.0, whole).unwrap()
}

fn ill() -> Box<CertificateAuthorityError> {
    Box::new(CertificateAuthorityError::UnknownType("is ill".to_owned()))
}

/// Asks an authority that fails, and counts how often it was asked.
fn ask_broken(
    issuer: &Whole,
    asked: &Cell<u32>,
    now: Timestamp,
) -> Result<IssuedCertificate<Arc<Certificate>>, Error> {
    let proxy = web("default");
    let names = names_of_web("default");
    let wanted = CertificateRequest {
        proxy: &proxy,
        place: "identity",
        mesh: "default",
        backend: "ca-1",
        names: &names,
        fresh_key: None,
    };
    let fail = || {
        asked.set(asked.get() + 1);
        Err(Error::Authority { mesh: "default".into(), backend: "ca-1".into(), reason: ill() })
    };
    issuer.certificate_for(wanted, fail, now, 0.0, whole)
}

#[test]
fn a_proxy_that_reconnects_keeps_its_certificate_until_it_is_due() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let issuer = Whole::default();
    let names = names_of_web("default");
    let first = ask(&issuer, &authority, &names, noon());
    let again = ask(&issuer, &authority, &names, first.ask_again - 1.second());
    assert_eq!((&again, issuer.signed()), (&first, 1));
    assert!(first.ask_again < first.facts.expires);

    let next = ask(&issuer, &authority, &names, first.ask_again);
    assert_eq!(issuer.signed(), 2);
    assert_eq!(next.facts.issued_at, first.ask_again);
    assert!(next.facts.expires > first.facts.expires);
    assert_ne!(next.certificate.private_key(), first.certificate.private_key());
}

#[test]
fn after_a_restart_the_same_certificate_is_offered() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let names = names_of_web("default");
    let before = ask(&Whole::default(), &authority, &names, noon());
    let after = ask(&Whole::default(), &authority, &names, before.ask_again - 1.second());
    assert_eq!(after, before);
}

#[test]
fn another_name_backend_or_root_replaces_a_certificate_at_once() {
    let backends = mesh("default").authority("old", "STRICT").authority("new", "STRICT").draft();
    let stored = snapshot(with_roots(backends.clone()));
    let issuer = Whole::default();
    let names = names_of_web("default");
    let old = load(&stored, "old");
    ask(&issuer, &old, &names, noon());
    let fewer = ask(&issuer, &old, &names[..1], noon());
    assert_eq!((fewer.facts.names.as_slice(), issuer.signed()), (&names[..1], 2));

    let moved = ask(&issuer, &load(&stored, "new"), &names, noon());
    assert_eq!((&*moved.facts.backend, issuer.signed()), ("new", 3));

    let replaced = load(&snapshot(with_roots(backends)), "new");
    let trusted_again = ask(&issuer, &replaced, &names, noon());
    assert_ne!(trusted_again.certificate.chain, moved.certificate.chain);
    assert_eq!(issuer.signed(), 4);
}

#[test]
fn an_authority_that_fails_is_asked_ever_more_seldom_up_to_once_a_minute() {
    let issuer = Whole::default();
    let asked = Cell::new(0);
    let mut now = noon();
    for (attempt, pause) in (1..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
        let error = ask_broken(&issuer, &asked, now).unwrap_err();
        assert_eq!(asked.get(), attempt);
        let retry_at = now + pause.seconds();
        assert!(
            matches!(&error, Error::Issuance { attempts, retry_at: at, .. } if (*attempts, *at) == (attempt, retry_at)),
            "{error}"
        );
        assert!(error.to_string().contains("is ill"), "{error}");
        let throttled = ask_broken(&issuer, &asked, retry_at - 1.millisecond()).unwrap_err();
        assert_eq!((throttled, asked.get()), (error, attempt));
        let failure = issuer.failure("default", "ca-1").unwrap();
        assert_eq!((failure.attempts, failure.retry_at), (attempt, retry_at));
        now = retry_at;
    }
    assert!(issuer.failure("default", "other").is_none() && issuer.failure("other", "ca-1").is_none());
}

#[test]
fn a_mended_authority_is_used_when_its_time_comes_or_at_once_when_told() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let names = names_of_web("default");
    for told in [false, true] {
        let issuer = Whole::default();
        let asked = Cell::new(0);
        ask_broken(&issuer, &asked, noon()).unwrap_err();
        let now = if told { noon() } else { noon() + 1.second() };
        if told {
            issuer.forgive("default");
        }
        ask(&issuer, &authority, &names, now);
        assert!(issuer.failure("default", "ca-1").is_none());
        ask_broken(&issuer, &asked, now + 48.hours()).unwrap_err();
        assert_eq!(issuer.failure("default", "ca-1").unwrap().attempts, 1, "counting starts again");
    }
}

#[test]
fn a_failing_authority_keeps_a_valid_certificate_and_no_expired_one() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let issuer = Whole::default();
    let asked = Cell::new(0);
    let held = ask(&issuer, &authority, &names_of_web("default"), noon());
    let kept = ask_broken(&issuer, &asked, held.ask_again).unwrap();
    assert_eq!(kept.certificate, held.certificate);
    assert_eq!(kept.ask_again, held.ask_again + 1.second());
    ask_broken(&issuer, &asked, held.facts.expires).unwrap_err();
    issuer.forget(&web("default"));
    ask_broken(&issuer, &asked, noon()).unwrap_err();
}

#[test]
fn a_failing_authority_hands_out_no_certificate_with_other_names() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let issuer = Whole::default();
    let asked = Cell::new(0);
    let others = ["spiffe://default/payments".to_owned()];
    let held = ask(&issuer, &authority, &others, noon());
    let refused = ask_broken(&issuer, &asked, held.ask_again).unwrap_err();
    assert!(matches!(refused, Error::Issuance { .. }), "{refused}");
}

#[test]
fn an_expired_authority_signs_nothing_more_and_says_why() {
    let backend = json!({ "name": "ca-1", "type": "builtin", "conf": { "caCert": { "expiration": "1h" } } });
    let authority = load(&snapshot(with_roots(mesh("default").backend(backend).draft())), "ca-1");
    let proxy = web("default");
    let names = names_of_web("default");
    let wanted = CertificateRequest {
        proxy: &proxy,
        place: "identity",
        mesh: "default",
        backend: "ca-1",
        names: &names,
        fresh_key: None,
    };
    let issuer = Whole::default();
    let late = noon() + 1.hour();
    let error =
        issuer.certificate_for(wanted, || Ok(authority.clone()), late, 0.0, whole).unwrap_err().to_string();
    assert!(error.contains("expired at 2026-06-01T13:00:00Z") && error.contains("rotate"), "{error}");
}

#[test]
fn an_issuer_does_not_show_keys() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let issuer = Whole::default();
    let offer = ask(&issuer, &authority, &names_of_web("default"), noon());
    let shown = format!("{issuer:?} {offer:?}");
    assert!(offer.certificate.private_key().lines().all(|line| !shown.contains(line)), "{shown}");
}

/// Two threads ask at once, and each gets its certificate when `ready` says so; returns how many were
/// signed.
fn at_once(proxies: [&str; 2], ready: impl Fn(u32) -> bool + Sync) -> u64 {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let issuer = Whole::default();
    let names = names_of_web("default");
    let coming = AtomicU32::new(0);
    let inside = AtomicU32::new(0);
    let ask = &|name: &str| {
        let proxy = Key::new(Kind::Dataplane, "default", name);
        let wanted = CertificateRequest {
            proxy: &proxy,
            place: "identity",
            mesh: "default",
            backend: "ca-1",
            names: &names,
            fresh_key: None,
        };
        let form = |certificate: &Certificate| {
            let others = inside.fetch_add(1, Ordering::SeqCst);
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while coming.load(Ordering::SeqCst) < 2 || !ready(inside.load(Ordering::SeqCst)) {
                assert!(std::time::Instant::now() < deadline, "{others} others are inside");
                std::thread::yield_now();
            }
            whole(certificate)
        };
        coming.fetch_add(1, Ordering::SeqCst);
        issuer.certificate_for(wanted, || Ok(authority.clone()), noon(), 0.0, form).unwrap();
    };
    std::thread::scope(|scope| proxies.map(|name| scope.spawn(move || ask(name))).map(drop));
    issuer.signed()
}

#[test]
fn proxies_are_served_at_the_same_time_and_one_proxy_gets_one_signature() {
    assert_eq!(at_once(["web", "api"], |inside| inside == 2), 2, "each is served while the other one is");
    assert_eq!(at_once(["web", "web"], |inside| inside == 1), 1);
}

#[test]
fn attempts_that_fail_at_the_same_time_count_as_one() {
    let issuer = Whole::default();
    let asked = Cell::new(0);
    let proxy = Key::new(Kind::Dataplane, "default", "api");
    let names = names_of_web("default");
    let wanted = CertificateRequest {
        proxy: &proxy,
        place: "identity",
        mesh: "default",
        backend: "ca-1",
        names: &names,
        fresh_key: None,
    };
    let fail = || {
        // Another proxy's attempt fails while this one is under way.
        ask_broken(&issuer, &asked, noon()).unwrap_err();
        Err(Error::Authority { mesh: "default".into(), backend: "ca-1".into(), reason: ill() })
    };
    issuer.certificate_for(wanted, fail, noon(), 0.0, whole).unwrap_err();
    assert_eq!(issuer.failure("default", "ca-1").unwrap().attempts, 1);
}

#[test]
fn a_clock_set_back_leaves_valid_certificates_and_no_lasting_failure() {
    let authority = load(&snapshot(builtin_mesh("default")), "ca-1");
    let issuer = Whole::default();
    let names = names_of_web("default");
    let later = ask(&issuer, &authority, &names, noon() + 48.hours());
    let now = ask(&issuer, &authority, &names, noon());
    assert!(now.facts.issued_at <= noon() && later.facts.issued_at > noon());

    let asked = Cell::new(0);
    issuer.forget(&web("default"));
    ask_broken(&issuer, &asked, noon() + 48.hours()).unwrap_err();
    ask(&issuer, &authority, &names, noon());
}
