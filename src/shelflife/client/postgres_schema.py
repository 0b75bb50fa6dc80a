"""What is in a PostgreSQL that keeps a memory: tables, and functions by which a look and a write take one round trip each.

A function keeps the plans of its statements for as long as a connection lives, also behind a pooler, where nothing can be prepared. Nobody
waits for another while a client is silent: when the function ends, so does its transaction.
"""

__all__ = ["SCHEMA"]

_TABLES = """
-- names may be longer than an index takes: so it is over their digests
create table roots (
    number bigint generated always as identity primary key, namespace text not null, root text not null,
    revision bigint not null, knowledge bytea not null, uses bigint not null default 0,
    held bigint not null default 0
);
create unique index roots_by_name on roots (namespace, md5(root));
create table shapes (root bigint, operation text, shape text, entries bigint not null);
create unique index shapes_by_name on shapes (root, md5(operation), md5(shape));
create table tags (root bigint, tag bigint, entries bigint not null, primary key (root, tag));
-- entries that have left and are still counted, with their tags and in `held`: to count takes longer than all else of an eviction
create table left_behind (root bigint, entries bigint not null, tags bigint[] not null);
create index left_behind_by_root on left_behind (root);
create table entries (
    root bigint, id bytea, place bytea not null, slot text not null, operation text not null,
    shape text not null, used bigint not null, tags bigint[] not null, learned_at float8 not null,
    told text not null, primary key (id, root)
);
comment on column entries.told is 'the rest of it, in JSON: it goes into answers as it stands here';
create index entries_by_place on entries (place);
create index entries_by_use on entries (root, used);
create index entries_by_tag on entries using gin (tags) with (fastupdate = off);
create table diary (namespace text not null, hour bigint not null, root text not null, what text not null, times bigint not null);
create unique index diary_by_hour on diary (namespace, hour, md5(root), what);
"""

_COUNT = """
create function counted(of_root bigint, these bigint[]) returns json language sql stable as $$
    select coalesce(json_agg(coalesce((select t.entries from tags t where t.root = of_root and t.tag = asked.tag), 0) - (
        select count(*) from left_behind b, unnest(b.tags) as gone (tag) where b.root = of_root and gone.tag = asked.tag
    ) order by asked.number), '[]') from unnest(these) with ordinality as asked (tag, number)
$$;
"""
"""How many bear each of these tags, but for those that have left."""

_LOOK = """
create function look(
    of_namespace text, of_root text, at_revision bigint, of_operation text, lacks_shapes boolean,
    missing bytea[], held bytea[], tags bigint[]
)
returns text
language plpgsql stable as $$
declare
    known roots;
    shapes json;
    found text;
begin
    select * into known from roots r
    where r.namespace = of_namespace and md5(r.root) = md5(of_root) and r.root = of_root;
    if known.number is null then
        return null;
    end if;
    if known.revision <> at_revision then
        missing := missing || held;
        lacks_shapes := true;
    end if;
    if of_operation is not null and lacks_shapes then
        select coalesce(json_agg(s.shape order by s.shape), '[]') into shapes from shapes s
        where s.root = known.number and md5(s.operation) = md5(of_operation) and s.operation = of_operation;
    end if;
    if cardinality(missing) > 0 then
        select string_agg('[' || to_json(e.learned_at) || ',' || e.told || ']', ',') into found
        from entries e where e.place = any(missing) and e.root + 0 = known.number;
    end if;
    return '[' || known.revision
        || ',' || case when known.revision <> at_revision then to_json(convert_from(known.knowledge, 'UTF8'))::text else 'null' end
        || ',' || coalesce(shapes::text, 'null')
        || ',' || case when cardinality(tags) > 0 then counted(known.number, tags)::text else '[]' end
        || ',[' || coalesce(found, '') || ']]';
end $$;
"""
"""It is stable, and so of one moment, whatever is written meanwhile."""

_WRITE = """
create function write(
    of_namespace text, of_root text, before bigint, after bigint, new_knowledge bytea, noted bytea[],
    drop_tags bigint[], drop_ids bytea[], puts json, capacity bigint, counted_tags bigint[],
    channel text
)
returns text
language plpgsql as $$
declare
    root_number bigint;
    use_number bigint;
    held_count bigint;
    counted_count bigint;
    filed json;
    number bigint;
    came entries;
    one entries;
    left_now entries[];
    dropped entries[] := '{}';
    all_left entries[] := '{}';
    all_came entries[] := '{}';
    left_tags bigint[];
    is_shape_lost boolean := false;
    is_left_behind boolean := false;
    told_dropped text;
    told_trimmed text;
    told_others text[] := '{}';
    message text;
begin
    use_number := cardinality(noted) + json_array_length(puts);
    if before = 0 then
        insert into roots as r (namespace, root, revision, knowledge, uses)
        values (of_namespace, of_root, after, new_knowledge, use_number)
        on conflict do nothing returning r.number, r.uses - use_number, r.held into root_number, use_number, held_count;
    else
        update roots r set revision = after, knowledge = new_knowledge, uses = r.uses + use_number
        where r.namespace = of_namespace and md5(r.root) = md5(of_root) and r.root = of_root and r.revision = before
        returning r.number, r.uses - use_number, r.held into root_number, use_number, held_count;
    end if;
    if root_number is null then
        return null;
    end if;
    if cardinality(noted) > 0 then
        update entries e set used = use_number + n.number
        from unnest(noted) with ordinality as n (id, number) where e.id = n.id and e.root + 0 = root_number;
        use_number := use_number + cardinality(noted);
    end if;

    if cardinality(drop_tags) > 0 or cardinality(drop_ids) > 0 then
        with gone as (
            delete from entries e
            where e.tags && drop_tags or (e.id = any(drop_ids) and e.root + 0 = root_number) returning e
        ), fewer as (
            insert into shapes as s
            select root_number, (g.e).operation, (g.e).shape, -count(*) from gone g group by (g.e).operation, (g.e).shape
            on conflict (root, md5(operation), md5(shape)) do update set entries = s.entries + excluded.entries
            returning s.entries
        )
        select coalesce(array_agg(g.e), '{}'), exists(select from fewer f where f.entries <= 0), string_agg(
            '[' || array_to_json((g.e).tags) || ',' || to_json((g.e).learned_at) || ',' || (g.e).told || ']', ',' order by (g.e).used
        ) into dropped, is_shape_lost, told_dropped from gone g;
    end if;

    for filed, number in select * from json_array_elements(puts) with ordinality loop
        came := (
            root_number, decode(filed->>0, 'hex'), decode(filed->>1, 'hex'), filed->>2, filed->>3, filed->>4,
            use_number + number, array(select t::bigint from json_array_elements_text(filed->5) t),
            filed->>6, filed->>7
        );
        with gone as (
            delete from entries e
            where e.place = came.place and e.slot = came.slot and e.root + 0 = root_number returning e
        )
        select coalesce(array_agg(g.e order by (g.e).used), '{}') into left_now from gone g;
        foreach one in array left_now loop
            told_others := told_others || concat(
                '[', case when one.id = came.id then number else 0 end, ',', to_json(one.learned_at), ',', one.told, ']'
            );
            if one.id = came.id then
                came.used := one.used;
                came.learned_at := one.learned_at;
            end if;
        end loop;
        insert into entries values (came.*);
        all_left := all_left || left_now;
        all_came := all_came || came;
    end loop;

    held_count := held_count + cardinality(all_came) - cardinality(all_left) - cardinality(dropped);
    if held_count > capacity then -- or it may be: those that were left behind are in it
        held_count := held_count - (select coalesce(sum(b.entries), 0) from left_behind b where b.root = root_number);
    end if;
    if held_count > capacity then
        with gone as (
            delete from entries e where e.root + 0 = root_number and e.id = any(array(
                select l.id from entries l where l.root = root_number order by l.used limit held_count - capacity
            )) returning e
        )
        select coalesce(array_agg(g.e), '{}'), string_agg(
            '[' || to_json((g.e).learned_at) || ',' || (g.e).told || ']', ',' order by (g.e).used
        ) into left_now, told_trimmed from gone g;
        all_left := all_left || left_now;
    end if;

    if cardinality(all_came) = 0 and cardinality(all_left) = 0 and cardinality(dropped) between 1 and 32 then
        insert into left_behind select root_number, cardinality(dropped), array(
            select t.tag from unnest(dropped) l, unnest(l.tags) as t (tag)
        ) where (select count(*) from left_behind b where b.root = root_number) < 8;
        is_left_behind := found;
    end if;
    if not is_left_behind and cardinality(all_came) + cardinality(all_left) + cardinality(dropped) > 0 then
        insert into shapes as s select root_number, c.operation, c.shape, sum(c.change) from (
            select a.operation, a.shape, 1 from unnest(all_came) a
            union all select l.operation, l.shape, -1 from unnest(all_left) l
        ) as c (operation, shape, change) group by c.operation, c.shape having sum(c.change) <> 0
        on conflict (root, md5(operation), md5(shape)) do update set entries = s.entries + excluded.entries;
        is_shape_lost := true;
        all_left := all_left || dropped;
        with counted_now as (delete from left_behind b where b.root = root_number returning b.tags, b.entries)
        select coalesce(sum(n.entries), 0), array(
            select t.tag from unnest(all_left) l, unnest(l.tags) as t (tag)
        ) || array(select t.tag from counted_now n, unnest(n.tags) as t (tag))
        into counted_count, left_tags from counted_now n;
        update roots r set held = r.held + cardinality(all_came) - cardinality(all_left) - counted_count
        where r.number = root_number;
        insert into tags as s select root_number, c.tag, sum(c.change) from (
            select t.tag, 1 from unnest(all_came) a, unnest(a.tags) as t (tag)
            union all select t.tag, -1 from unnest(left_tags) as t (tag)
        ) as c (tag, change) group by c.tag having sum(c.change) <> 0
        on conflict (root, tag) do update set entries = s.entries + excluded.entries;
        delete from tags s where s.root = root_number and s.entries <= 0 and s.tag = any(left_tags);
    end if;
    if is_shape_lost then
        delete from shapes s where s.root = root_number and s.entries <= 0;
    end if;

    select json_build_array(
        of_root, before::text, after::text, convert_from(new_knowledge, 'UTF8'),
        coalesce(json_agg(encode(c.place, 'hex')), '[]'), coalesce(json_agg(distinct c.operation), '[]')
    ) into message from unnest(all_came || all_left || dropped) c;
    if octet_length(message) > 7000 then -- of 8000 that PostgreSQL tells at once
        message := json_build_array(of_root, before::text, after::text, '', '{}'::text[], '{}'::text[]);
    end if;
    if octet_length(message) > 7000 then -- not even the root: then all is looked at anew
        message := json_build_array('', '0', '0', '', '{}'::text[], '{}'::text[]);
    end if;
    perform pg_notify(channel, message);

    return '[[' || coalesce(told_dropped, '') || '],[' || array_to_string(told_others, ',') || '],['
        || coalesce(told_trimmed, '') || '],'
        || case when cardinality(counted_tags) > 0 then counted(root_number, counted_tags)::text else '[]' end || ']';
end $$;
"""
"""Nothing comes back where the root is not at the revision any more. Whoever comes second waits for the root, and finds that out. Else it is
what was dropped, with its tags; what was at the place and slot of what has come, with the number of what that is again, or 0 where it is
another; what was trimmed; and how many bear the tags that are counted."""

_NOTE = """
create function note(of_namespace text, of_root text, noted bytea[]) returns void language sql as $$
    with known as (
        update roots r set uses = r.uses + cardinality(noted)
        where r.namespace = of_namespace and md5(r.root) = md5(of_root) and r.root = of_root
        returning r.number, r.uses - cardinality(noted) as uses
    )
    update entries e set used = k.uses + n.number from known k, unnest(noted) with ordinality as n (id, number)
    where e.id = n.id and e.root + 0 = k.number
$$;
"""

_SETTINGS = """
alter function look set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off;
alter function write set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
    set lock_timeout = '800ms';
alter function note set search_path from current set enable_seqscan = off set lock_timeout = '800ms';
"""
"""A plan is made once, maybe while there was nothing in the tables, and is to be the one for many entries. So no statement leaves a choice
between indexes: `root + 0` is found in none. A lock is waited for no longer than an agent waits for a verb."""

SCHEMA = _TABLES + _COUNT + _LOOK + _WRITE + _NOTE + _SETTINGS
