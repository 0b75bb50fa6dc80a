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
-- the tags of entries that have left and are still counted: to count them takes longer than all else of an eviction
create table left_behind (root bigint, tags bigint[] not null);
create index left_behind_by_root on left_behind (root);
create table entries (
    root bigint, id bytea, place bytea not null, slot text not null, operation text not null,
    shape text not null, used bigint not null, tags bigint[] not null, learned_at float8 not null,
    entry bytea not null, primary key (id, root)
);
create index entries_by_place on entries (place);
create index entries_by_use on entries (root, used);
create index entries_by_tag on entries using gin (tags) with (fastupdate = off);
"""

_LOOK = """
create function look(
    of_namespace text, of_root text, at_revision bigint, of_operation text, lacks_shapes boolean,
    missing bytea[], held bytea[], counted bigint[]
)
returns table (
    revision bigint, knowledge bytea, shapes text[], counts bigint[],
    id bytea, place bytea, learned_at float8, entry bytea
)
language plpgsql stable as $$
declare
    root_number bigint;
    is_other boolean;
begin
    select r.number, r.revision, r.knowledge into root_number, revision, knowledge
    from roots r where r.namespace = of_namespace and md5(r.root) = md5(of_root) and r.root = of_root;
    if root_number is null then
        return;
    end if;
    is_other := revision <> at_revision;
    if not is_other then
        knowledge := null;
    end if;
    if of_operation is not null and (is_other or lacks_shapes) then
        shapes := array(
            select s.shape from shapes s
            where s.root = root_number and md5(s.operation) = md5(of_operation) and s.operation = of_operation
            order by s.shape
        );
    end if;
    if cardinality(counted) > 0 then
        counts := array(
            select coalesce((select t.entries from tags t where t.root = root_number and t.tag = asked.tag), 0) - (
                select count(*) from left_behind b, unnest(b.tags) as gone (tag)
                where b.root = root_number and gone.tag = asked.tag
            )
            from unnest(counted) with ordinality as asked (tag, number) order by asked.number
        );
    end if;
    if is_other then
        missing := missing || held;
    end if;
    if cardinality(missing) > 0 then
        for id, place, learned_at, entry in
            select e.id, e.place, e.learned_at, e.entry from entries e
            where e.place = any(missing) and e.root + 0 = root_number
        loop
            return next;
        end loop;
    end if;
    if not found or cardinality(missing) = 0 then
        return next;
    end if;
end $$;
"""
"""It is stable, and so of one moment, whatever is written meanwhile."""

_WRITE = """
create function write(
    of_namespace text, of_root text, before bigint, after bigint, new_knowledge bytea, noted bytea[],
    drop_tags bigint[], drop_ids bytea[], puts json, capacity bigint, counted bigint[],
    channel text
)
returns table (
    what text, number bigint, id bytea, place bytea, tags bigint[], learned_at float8, entry bytea
)
language plpgsql as $$
declare
    root_number bigint;
    use_number bigint;
    held_count bigint;
    filed json;
    came entries;
    one entries;
    removed entries[];
    left_now entries[];
    all_left entries[] := '{}';
    all_came entries[] := '{}';
    left_tags bigint[];
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
        return;
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
        )
        select coalesce(array_agg(g.e order by (g.e).used), '{}') into removed from gone g;
        return query select 'dropped', 0::bigint, g.id, g.place, g.tags, g.learned_at, g.entry from unnest(removed) g;
        all_left := removed;
    end if;

    for filed, number in select * from json_array_elements(puts) with ordinality loop
        came := (
            root_number, decode(filed->>0, 'hex'), decode(filed->>1, 'hex'), filed->>2, filed->>3, filed->>4,
            use_number + number, array(select t::bigint from json_array_elements_text(filed->5) t),
            filed->>6, convert_to((filed->7)::text, 'UTF8')
        );
        with gone as (
            delete from entries e
            where e.place = came.place and e.slot = came.slot and e.root + 0 = root_number returning e
        )
        select coalesce(array_agg(g.e order by (g.e).used), '{}') into left_now from gone g;
        foreach one in array left_now loop
            what := 'replaced';
            if one.id = came.id then
                what := 'before';
                came.used := one.used;
                came.learned_at := one.learned_at;
            end if;
            id := one.id; place := one.place; tags := one.tags; learned_at := one.learned_at; entry := one.entry;
            return next;
        end loop;
        insert into entries values (came.*);
        all_left := all_left || left_now;
        all_came := all_came || came;
    end loop;

    held_count := held_count + cardinality(all_came) - cardinality(all_left);
    if held_count > capacity then
        with gone as (
            delete from entries e where e.root + 0 = root_number and e.id = any(array(
                select l.id from entries l where l.root = root_number order by l.used limit held_count - capacity
            )) returning e
        )
        select coalesce(array_agg(g.e order by (g.e).used), '{}') into removed from gone g;
        return query select 'trimmed', 0::bigint, g.id, g.place, g.tags, g.learned_at, g.entry from unnest(removed) g;
        all_left := all_left || removed;
        held_count := held_count - cardinality(removed);
    end if;

    if cardinality(all_came) > 0 or cardinality(all_left) > 0 then
        update roots r set held = held_count where r.number = root_number;
        insert into shapes as s select root_number, c.operation, c.shape, sum(c.change) from (
            select a.operation, a.shape, 1 from unnest(all_came) a
            union all select l.operation, l.shape, -1 from unnest(all_left) l
        ) as c (operation, shape, change) group by c.operation, c.shape having sum(c.change) <> 0
        on conflict (root, md5(operation), md5(shape)) do update set entries = s.entries + excluded.entries;
        left_tags := array(select t.tag from unnest(all_left) l, unnest(l.tags) as t (tag));
        if cardinality(all_came) = 0 and cardinality(all_left) <= 32
            and (select count(*) from left_behind b where b.root = root_number) < 8
        then
            insert into left_behind values (root_number, left_tags);
        else
            with counted_now as (delete from left_behind b where b.root = root_number returning b.tags)
            select left_tags || array(select t.tag from counted_now n, unnest(n.tags) as t (tag)) into left_tags;
            insert into tags as s select root_number, c.tag, sum(c.change) from (
                select t.tag, 1 from unnest(all_came) a, unnest(a.tags) as t (tag)
                union all select t.tag, -1 from unnest(left_tags) as t (tag)
            ) as c (tag, change) group by c.tag having sum(c.change) <> 0
            on conflict (root, tag) do update set entries = s.entries + excluded.entries;
            delete from tags s where s.root = root_number and s.entries <= 0 and s.tag = any(left_tags);
        end if;
    end if;
    if cardinality(all_left) > 0 then
        delete from shapes s where s.root = root_number and s.entries <= 0;
    end if;

    message := json_build_array(
        of_root, before::text, after::text, convert_from(new_knowledge, 'UTF8'),
        array(select distinct encode(c.place, 'hex') from unnest(all_came || all_left) c),
        array(select distinct c.operation from unnest(all_came || all_left) c)
    );
    if octet_length(message) > 7000 then -- of 8000 that PostgreSQL tells at once
        message := json_build_array(of_root, before::text, after::text, '', '{}'::text[], '{}'::text[]);
    end if;
    if octet_length(message) > 7000 then -- not even the root: then all is looked at anew
        message := json_build_array('', '0', '0', '', '{}'::text[], '{}'::text[]);
    end if;
    perform pg_notify(channel, message);

    what := 'written';
    tags := array(
        select coalesce((select t.entries from tags t where t.root = root_number and t.tag = asked.tag), 0) - (
            select count(*) from left_behind b, unnest(b.tags) as gone (tag)
            where b.root = root_number and gone.tag = asked.tag
        )
        from unnest(counted) with ordinality as asked (tag, number) order by asked.number
    );
    return next;
end $$;
"""
"""Nothing comes back where the root is not at the revision any more. Whoever comes second waits for the root, and finds that out. The last
row has, as its tags, how many bear those that are counted."""

_SETTINGS = """
alter function look set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off;
alter function write set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
    set lock_timeout = '800ms';
"""
"""A plan is made once, maybe while there was nothing in the tables, and is to be the one for many entries. So no statement leaves a choice
between indexes: `root + 0` is found in none. A lock is waited for no longer than an agent waits for a verb."""

SCHEMA = _TABLES + _LOOK + _WRITE + _SETTINGS
