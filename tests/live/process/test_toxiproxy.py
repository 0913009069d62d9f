"""The library toxiproxy-python over our own transport, with the real Toxiproxy."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from squall.chaos.runtimes.contract import Cut, CutMode, Latency, Link, LinkFault
from squall.chaos.runtimes.process.backend import ProcessBackend
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.runtimes.real.proxied_links import toxic
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi
from squall.chaos.runtimes.real.toxiproxy_transport import ToxiproxyError
from squall.chaos.toolchain.toxiproxy import VERSION

pytestmark = pytest.mark.night("every fault of links on a real Toxiproxy; the gate has one of each kind")

LINK, PROXY = Link(1, 2), "1-to-2"


def api_of(runtime: ProcessRuntime) -> ToxiproxyApi:
    assert isinstance(runtime.backend, ProcessBackend)
    return ToxiproxyApi(*runtime.backend.api)


async def test_it_says_which_version_it_is_and_what_proxies_it_has(runtime: ProcessRuntime) -> None:
    api = api_of(runtime)
    assert await trio.to_thread.run_sync(api.version) == VERSION
    proxies = await trio.to_thread.run_sync(api.proxies)
    assert len(proxies) == len(runtime.links())
    assert proxies[PROXY].enabled
    api.close()


@pytest.mark.parametrize("fault", [Latency(40, 5), Cut(CutMode.HOLD)], ids=str)
async def test_what_was_put_on_a_link_is_read_back(runtime: ProcessRuntime, fault: LinkFault) -> None:
    api = api_of(runtime)
    read = partial(trio.to_thread.run_sync, api.toxics, PROXY)
    kind, attributes = toxic(fault)
    await runtime.fault_link("f", LINK, fault)
    found = await read()
    assert {each.stream for each in found.values()} == {"upstream", "downstream"}
    assert {each.type for each in found.values()} == {kind}
    assert all(each.attributes == attributes for each in found.values())
    await runtime.heal_link("f", LINK)
    assert await read() == {}
    api.close()


async def test_a_proxy_that_was_switched_off_says_so(runtime: ProcessRuntime) -> None:
    api = api_of(runtime)
    await runtime.fault_link("f", LINK, Cut(CutMode.REFUSE))
    assert not (await trio.to_thread.run_sync(api.proxies))[PROXY].enabled
    await runtime.heal_link("f", LINK)
    assert (await trio.to_thread.run_sync(api.proxies))[PROXY].enabled
    api.close()


async def test_its_refusals_are_errors(runtime: ProcessRuntime) -> None:
    api = api_of(runtime)
    with pytest.raises(ToxiproxyError, match="400"):
        await trio.to_thread.run_sync(api.add_toxic, PROXY, "t", "no such toxic", "upstream", {})
    await trio.to_thread.run_sync(api.add_toxic, PROXY, "t", "latency", "upstream", {"latency": 1})
    with pytest.raises(ToxiproxyError, match="409"):
        await trio.to_thread.run_sync(api.add_toxic, PROXY, "t", "latency", "upstream", {"latency": 1})
    api.close()
