use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn range(text: &str) -> Ipv4Range {
    text.parse().unwrap()
}

fn services() -> [Ipv4Range; 3] {
    [241, 242, 243].map(Ipv4Range::class_a)
}

fn pool(text: &str) -> Pool {
    Pool::new(range(text), &services()).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<Arc<str>> {
    names.into_iter().map(Arc::from).collect()
}

/// All shards of a mesh, allocated one after the other as a control plane does.
#[derive(Debug, Clone, Default, PartialEq)]
struct Mesh {
    shards: BTreeMap<u8, Shard>,
    without: BTreeSet<Arc<str>>,
}

impl Mesh {
    fn allocate(&mut self, pool: &Pool, wanted: &BTreeSet<Arc<str>>, now: Timestamp) {
        self.allocate_with(pool, wanted, &BTreeMap::new(), now);
    }

    fn allocate_with(
        &mut self,
        pool: &Pool,
        wanted: &BTreeSet<Arc<str>>,
        imported: &BTreeMap<Arc<str>, Ipv4Addr>,
        now: Timestamp,
    ) {
        self.without.clear();
        let given = imported.iter().map(|(host, address)| (*address, host.clone()));
        let mut held: HashMap<Ipv4Addr, Arc<str>> = given.collect();
        let entries = self.shards.values().flatten();
        held.extend(entries.map(|(host, entry)| (entry.address, host.clone())));
        let mut by_shard: BTreeMap<u8, BTreeSet<Arc<str>>> =
            self.shards.keys().map(|shard| (*shard, BTreeSet::new())).collect();
        for host in wanted {
            by_shard.entry(shard_of(host)).or_default().insert(host.clone());
        }
        for (shard, own) in by_shard {
            let previous = self.shards.get(&shard).cloned().unwrap_or_default();
            let holder = |address| held.get(&address).cloned();
            let next = allocate(
                &previous,
                &own,
                &ShardContext { pool, quarantine: HOUR, imported, holder: &holder },
                now,
            );
            held.extend(next.shard.iter().map(|(host, entry)| (entry.address, host.clone())));
            self.without.extend(next.without);
            self.shards.insert(shard, next.shard);
        }
        self.shards.retain(|_, shard| !shard.is_empty());
    }

    fn of(&self, host: &str) -> Option<Ipv4Addr> {
        self.shards.get(&shard_of(host))?.get(host).map(|entry| entry.address)
    }
}

#[test]
fn the_ranges_of_services_are_left_out_of_a_range_that_contains_them() {
    assert_eq!(pool("240.0.0.0/8").size(), 1 << 24);
    let wide = pool("240.0.0.0/4");
    assert_eq!(wide.size(), 13 * (1 << 24) - 1);
    for (address, expect) in
        [("240.0.0.0", true), ("241.0.0.0", false), ("243.255.255.255", false), ("244.0.0.0", true)]
    {
        assert_eq!(wide.contains(address.parse().unwrap()), expect, "{address}");
    }
    assert!(!wide.contains(Ipv4Addr::BROADCAST));
    assert_eq!(wide.address((1 << 24) - 1), Some(Ipv4Addr::new(240, 255, 255, 255)));
    assert_eq!(wide.address(1 << 24), Some(Ipv4Addr::new(244, 0, 0, 0)));
}

#[test]
fn a_range_that_is_too_small_or_belongs_to_services_is_refused() {
    assert!(Pool::new(range("10.0.0.0/16"), &services()).is_ok());
    for text in ["10.0.0.0/17", "241.0.0.0/8", "242.3.0.0/16"] {
        let refused = Pool::new(range(text), &services()).unwrap_err().to_string();
        assert!(refused.contains(text) && refused.contains("at least 65536 are needed"), "{refused}");
    }
}

/// Addresses are stored: another hash would move those of every mesh that is upgraded.
#[test]
fn an_address_follows_from_the_hostname_alone() {
    let pool = pool("240.0.0.0/8");
    for (host, address) in EXPECTED {
        let mut mesh = Mesh::default();
        mesh.allocate(&pool, &names([host]), at(0));
        let found = mesh.of(host).unwrap().to_string();
        assert_eq!(found, address, "{host}");
    }
}

const EXPECTED: [(&str, &str); 3] = [
    ("backend.mesh", "240.15.233.200"),
    ("v1.backend.mesh", "240.118.166.196"),
    ("httpbin.mesh", "240.255.78.219"),
];

#[test]
fn a_released_address_goes_to_others_after_the_quarantine() {
    // So small that hostnames of a region meet.
    let pool = pool("10.0.0.0/16");
    let crowd: Vec<String> = (0..20_000).map(|i| format!("s{i}.mesh")).collect();
    let of_region: Vec<&str> =
        crowd.iter().map(String::as_str).filter(|host| shard_of(host) == 7).take(60).collect();
    let mut mesh = Mesh::default();
    mesh.allocate(&pool, &names(of_region.clone()), at(0));
    let before: Vec<Ipv4Addr> = of_region.iter().map(|host| mesh.of(host).unwrap()).collect();
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 60);

    mesh.allocate(&pool, &names([]), at(10));
    let newcomers: Vec<&str> =
        crowd.iter().map(String::as_str).filter(|host| shard_of(host) == 7).skip(60).take(10).collect();
    mesh.allocate(&pool, &names(newcomers.clone()), at(20));
    assert!(newcomers.iter().all(|host| !before.contains(&mesh.of(host).unwrap())));

    let back = newcomers.iter().copied().chain(of_region.clone());
    mesh.allocate(&pool, &names(back), at(30));
    let after: Vec<Ipv4Addr> = of_region.iter().map(|host| mesh.of(host).unwrap()).collect();
    assert_eq!(before, after);

    mesh.allocate(&pool, &names([]), at(40));
    let shard = mesh.shards[&7].clone();
    let known = ShardContext { pool: &pool, quarantine: HOUR, imported: &BTreeMap::new(), holder: &|_| None };
    let waiting = allocate(&shard, &names([]), &known, at(50));
    assert_eq!((waiting.shard.len(), waiting.look_again), (70, Some(at(3640))));
    assert_eq!(allocate(&shard, &names([]), &known, at(3640)), Allocation::default());
}

#[test]
fn a_full_region_is_said_and_nobody_loses_an_address() {
    let pool = pool("10.0.0.0/16");
    let crowd: Vec<String> = (0..100_000).map(|i| format!("s{i}.mesh")).collect();
    let of_region: Vec<&str> =
        crowd.iter().map(String::as_str).filter(|host| shard_of(host) == 7).take(257).collect();
    let mut mesh = Mesh::default();
    mesh.allocate(&pool, &names(of_region[..256].iter().copied()), at(0));
    assert!(mesh.without.is_empty());
    let before = mesh.clone();
    mesh.allocate(&pool, &names(of_region.clone()), at(1));
    assert_eq!((mesh.without.clone(), mesh.shards), (names([of_region[256]]), before.shards));
}

#[test]
fn addresses_that_kuma_gave_stay() {
    let imported = read_of_kuma(
        r#"{"0:frontend": {"address": "240.0.0.0", "outbounds": []}, "0:backend": {"address": "240.0.0.1"},
            "2:v1.backend.mesh": {"address": "240.0.0.2"}, "1:example.com": {"address": "240.0.0.3"},
            "2:backend.mesh": {"address": "240.0.0.4"}, "2:bad": {"address": "none"}}"#,
        "mesh",
    );
    let pool = pool("240.0.0.0/8");
    let mut mesh = Mesh::default();
    let wanted = names(["frontend.mesh", "backend.mesh", "v1.backend.mesh", "database.mesh"]);
    mesh.allocate_with(&pool, &wanted, &imported, at(0));
    let address = |host| mesh.of(host).unwrap().to_string();
    assert_eq!(address("frontend.mesh"), "240.0.0.0");
    assert_eq!(address("backend.mesh"), "240.0.0.4");
    assert_eq!(address("v1.backend.mesh"), "240.0.0.2");
    // Out of another range they are given anew.
    let mut moved = Mesh::default();
    moved.allocate_with(&self::pool("10.0.0.0/8"), &wanted, &imported, at(0));
    assert!(moved.of("frontend.mesh").unwrap().to_string().starts_with("10."));
}

#[test]
fn what_is_stored_is_found_by_its_name_and_read_as_it_was_written() {
    for mesh in ["default", "a-dns-vips", "a-dns-vips-00"] {
        assert_eq!(of_config(&config_name(mesh, 0x0a)), Some((mesh, VipRecord::Shard(0x0a))));
        assert_eq!(of_config(&name_of_kuma(mesh)), Some((mesh, VipRecord::ByKuma)));
    }
    for name in ["kuma-cluster-id", "kuma-default-dns-vips-0", "kuma-default-dns-vips-0A", "default-dns-vips"]
    {
        assert_eq!(of_config(name), None, "{name}");
    }
    let mut mesh = Mesh::default();
    mesh.allocate(&pool("240.0.0.0/8"), &names(["a.mesh"]), at(0));
    mesh.allocate(&pool("240.0.0.0/8"), &names([]), at(5));
    let shard = mesh.shards.values().next().unwrap();
    assert_eq!(read(&written(shard)), *shard);
    assert!(written(shard).contains("\"releasedAt\":\"1970-01-01T00:00:05Z\""), "{}", written(shard));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    /// The result follows from wanted and stored hostnames, in whatever order hostnames and shards are looked
    /// at.
    #[test]
    fn the_same_hostnames_get_the_same_addresses_in_any_order(
        numbers in prop::collection::vec(0u16..5000, 0..300).prop_shuffle(),
        shards in Just((0..=u8::MAX).collect::<Vec<u8>>()).prop_shuffle(),
    ) {
        let pool = pool("10.0.0.0/16");
        let hosts: Vec<Arc<str>> = numbers.iter().map(|i| Arc::from(format!("s{i}.mesh"))).collect();
        let mut mesh = Mesh::default();
        mesh.allocate(&pool, &hosts.iter().cloned().collect(), at(0));
        let imported = BTreeMap::new();
        for shard in shards {
            let wanted: BTreeSet<Arc<str>> = hosts.iter().filter(|host| shard_of(host) == shard).cloned().collect();
            let known = ShardContext { pool: &pool, quarantine: HOUR, imported: &imported, holder: &|_| None };
            let alone = allocate(&Shard::new(), &wanted, &known, at(9)).shard;
            prop_assert_eq!(Some(&alone).filter(|shard| !shard.is_empty()), mesh.shards.get(&shard));
        }
    }

    /// However hostnames come and go: who stays keeps the address, and no two have one, nor one in quarantine.
    #[test]
    fn addresses_are_stable_and_never_shared(rounds in prop::collection::vec(prop::collection::btree_set(0u16..600, 0..200), 1..8)) {
        let pool = pool("10.0.0.0/16");
        let mut mesh = Mesh::default();
        let mut now = 0;
        for round in rounds {
            now += 600;
            let wanted: BTreeSet<Arc<str>> = round.iter().map(|i| Arc::from(format!("s{i}.mesh"))).collect();
            let before = mesh.clone();
            mesh.allocate(&pool, &wanted, at(now));
            let mut again = mesh.clone();
            again.allocate(&pool, &wanted, at(now));
            prop_assert_eq!(&again, &mesh);
            let entries: Vec<(&Arc<str>, &VipEntry)> = mesh.shards.values().flatten().collect();
            let addresses: BTreeSet<Ipv4Addr> = entries.iter().map(|(_, entry)| entry.address).collect();
            prop_assert_eq!(addresses.len(), entries.len());
            for host in &wanted {
                prop_assert!(mesh.of(host).is_some());
                prop_assert!(before.of(host).is_none_or(|was| mesh.of(host) == Some(was)));
            }
        }
    }
}
