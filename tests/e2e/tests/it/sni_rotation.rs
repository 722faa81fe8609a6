//! SNIs get another format under load: first what clients dial, then what servers accept, each zone when its operator
//! wants it. What zone proxies count says when the old values can go.

use e2e::{Kumactl, eventually, proxy::RunningProxy, service::call};
use resources::naming::{kds::hashed_name, sni};
use serde_json::{Value, json};

use crate::{
    federated::{Federation, of_zone},
    scenarios::live::dump,
    world::{answered_by, load, mesh},
};

const ZONES: [&str; 2] = ["east", "west"];

/// The SNI of `backend` in a zone, in a format.
fn value(zone: &str, format: &str) -> String {
    match format {
        "kri" => format!("sni.msvc.default.{zone}.backend.main"),
        _ => {
            let data = [("kuma.io/zone".to_owned(), zone.to_owned())].into();
            sni::hashed("backend", "default", resources::Kind::MeshService, 8080, &data).unwrap()
        }
    }
}

fn other(zone: &str) -> &'static str {
    if zone == "east" { "west" } else { "east" }
}

/// True if the listener that is in use has a chain for a value. Statistics do not tell: those of a chain that is gone
/// stay until its connections have ended.
fn accepts(proxy: &RunningProxy, value: &str) -> bool {
    let listeners = dump(proxy, "ListenersConfigDump", "dynamic_listeners");
    let chains = listeners.iter().flat_map(|listener| {
        listener["active_state"]["listener"]["filter_chains"].as_array().cloned().unwrap_or_default()
    });
    let mut names = chains.flat_map(|chain| {
        chain["filter_chain_match"]["server_names"].as_array().cloned().unwrap_or_default()
    });
    names.any(|name| name == value)
}

struct Rotation {
    federation: Federation,
    /// Clients of `backend` of the other zone, by zone.
    clients: [std::net::Ipv4Addr; 2],
    /// Zone proxies, by zone.
    zone_proxies: Vec<(&'static str, RunningProxy)>,
}

impl Rotation {
    /// Starts a control plane again with other formats; `None` is the global one.
    fn switch(&mut self, zone: Option<&str>, formats: &str) {
        let world = match zone {
            Some(zone) => self.federation.zone_mut(zone),
            None => &mut self.federation.global,
        };
        let control_plane = &mut world.control_plane;
        control_plane.stop().unwrap();
        let setting = ("KUMA_MULTIZONE_SNI_FORMATS".to_owned(), formats.to_owned());
        let work_dir = control_plane.work_dir().to_owned();
        control_plane.start_again_in(&work_dir, &[setting]).unwrap();
    }

    fn get(&self, zone: Option<&str>, path: &str) -> Value {
        let world = zone.map_or(&self.federation.global, |zone| self.federation.zone(zone));
        world.control_plane.client().get(path).unwrap().json()
    }

    /// Usage of an SNI value at the zone proxies of a zone, or of all; nothing if it leads nowhere.
    fn usage(&self, zone: Option<&str>, value: &str) -> Value {
        self.get(zone, &format!("/meshes/default/_sni-usage?value={value}"))["items"][0].clone()
    }

    /// Waits until the other zone knows what to dial for `backend` of a zone.
    fn dialled(&self, zone: &str, format: &str) {
        let name = hashed_name("default", "backend", Some(zone), None);
        let path = format!("/meshes/default/meshservices/{name}");
        let expected = value(zone, format);
        let mut last = Value::Null;
        eventually("the other zone to dial another value", || {
            last = self.get(Some(other(zone)), &path)["spec"]["ports"][0]["snis"].clone();
            last[0]["value"] == expected
        })
        .unwrap_or_else(|error| panic!("{error}: {last}"));
    }

    /// Waits until the zone proxies of all these zones lead a value for `backend` of a zone on.
    fn accepted(&self, zone: &str, format: &str, at: &[&str]) {
        let value = value(zone, format);
        for at in at {
            eventually("zone proxies to accept the new value", || {
                let mut proxies = self.zone_proxies.iter().filter(|(of, _)| of == at);
                proxies.any(|(_, proxy)| accepts(proxy, &value))
            })
            .unwrap_or_else(|error| panic!("{error} in {at}"));
        }
    }

    /// Waits until connections for `backend` of a zone ask for the new value, and none that asked for the old one is
    /// left; `at` are those whose zone proxies must say so. Returns how often the old one was seen.
    fn reaches_zero(&self, zone: &str, [old, new]: [&str; 2], at: &[&str]) -> Vec<u64> {
        at.iter()
            .map(|&at| {
                let mut last = Value::Null;
                eventually("the old value to be out of use", || {
                    // Both from one answer, in which no zone proxy is missing.
                    let answer = self.get(Some(at), "/meshes/default/_sni-usage?size=1000");
                    let of = |format| {
                        let mut all = answer["items"].as_array().into_iter().flatten();
                        all.find(|item| item["value"] == value(zone, format)).cloned()
                    };
                    last = json!([of(old), of(new), answer["proxies"]]);
                    let all =
                        last[2].as_array().is_some_and(|all| all.iter().all(|it| it["error"].is_null()));
                    all && last[0]["active"] == 0 && last[1]["active"].as_u64() > Some(0)
                })
                .unwrap_or_else(|error| panic!("{error} in {at}: {last}"));
                last[0]["connections"].as_u64().unwrap()
            })
            .collect()
    }

    /// From one format to the other in three steps, a zone after the other. `through` says whose zone proxies see the
    /// calls to a zone.
    fn rotate(&mut self, [old, new]: [&str; 2], through: impl Fn(&'static str) -> Vec<&'static str>) {
        let both = format!("{new},{old}");
        let mut seen = Vec::new();
        for zone in ZONES {
            self.switch(Some(zone), &both);
            self.dialled(zone, new);
            seen.push(self.reaches_zero(zone, [old, new], &through(zone)));
        }
        self.switch(None, &both);
        for (zone, seen) in ZONES.iter().zip(seen) {
            // Nothing asked for the old value since.
            assert_eq!(self.reaches_zero(zone, [old, new], &through(zone)), seen, "{zone}");
            self.switch(Some(zone), new);
            // The KRI form is accepted always, listed or not.
            eventually("the old value to leave the list", || {
                let old = self.usage(Some(zone), &value(zone, old));
                old.is_null() || old["destinations"][0]["listed"] == false
            })
            .unwrap();
        }
        self.switch(None, new);
    }

    /// Calls both zones meanwhile, and asserts that no call fails.
    fn under_load(&mut self, during: impl FnOnce(&mut Rotation)) {
        let [east, west] = self.clients;
        let mut inner = (0, Vec::new());
        let outer = load(east, 10001, || inner = load(west, 10001, || during(self)));
        for (calls, failures) in [outer, inner] {
            assert!(failures.is_empty(), "{} of {calls}: {:?}", failures.len(), failures.first());
        }
    }
}

#[test]
fn snis_change_format_under_load_through_ingresses_and_egresses() {
    let federation = Federation::start(&ZONES, true);
    let mut running = Vec::new();
    let mut zone_proxies = Vec::new();
    for zone in ZONES {
        running.push(federation.serve(zone, &format!("backend-{zone}"), "backend"));
        zone_proxies.push((zone, federation.ingress(zone).0));
        zone_proxies.push((zone, federation.egress(zone)));
    }
    let clients: Vec<_> = ZONES
        .map(|zone| {
            federation.knows(zone, "backend", other(zone));
            federation.client(zone, "web", &[of_zone("backend", other(zone))])
        })
        .into();
    let clients_at = [clients[0].1, clients[1].1];
    for (zone, address) in ZONES.iter().zip(clients_at) {
        assert_eq!(answered_by(address, 10001), format!("backend-{}", other(zone)));
    }
    let mut rotation = Rotation { federation, clients: clients_at, zone_proxies };
    rotation.under_load(|rotation| rotation.rotate(["hashed", "kri"], |zone| vec![zone]));

    // The same through egresses, and back.
    let mut with_egress = mesh("STRICT");
    with_egress["routing"] = json!({"zoneEgress": true});
    rotation.federation.global.put("/meshes/default", &with_egress);
    for zone in ZONES {
        let mut last = Value::Null;
        eventually("calls through the egress", || {
            let _ = call(rotation.clients[usize::from(zone == "west")], 10001);
            last = rotation.usage(Some(zone), &value(other(zone), "kri"));
            last["active"].as_u64() > Some(0)
        })
        .unwrap_or_else(|error| panic!("{error} of {zone}: {last}"));
    }
    // Back it takes a step before: the hash with the zone is not accepted unless it is listed.
    rotation.under_load(|rotation| {
        for zone in ZONES {
            rotation.switch(Some(zone), "kri,hashed");
            rotation.accepted(zone, "hashed", &[zone, other(zone)]);
        }
        rotation.rotate(["kri", "hashed"], |zone| vec![zone, other(zone)]);
    });

    // A global control plane asks the zone proxies of all zones.
    let mut last = Value::Null;
    eventually("what zone proxies of all zones saw", || {
        last = rotation.usage(None, &value("west", "hashed"));
        let seen = last["seenBy"].as_array().into_iter().flatten();
        seen.map(|seen| &seen["kri"]).collect::<Vec<_>>()
            == ["kri_ze__east__exit-east_", "kri_zi__west__gate-west_"]
    })
    .unwrap_or_else(|error| panic!("{error}: {last}"));
    let told = Kumactl::of(&rotation.federation.zone("west").control_plane).unwrap();
    let told = told.ok(&["sni", "usage", "--value", &value("west", "hashed")]).unwrap();
    let row = told.lines().nth(1).unwrap_or_default();
    assert!(row.contains("kri_msvc_default_west__backend_main") && row.contains("yes"), "{told}");
}
