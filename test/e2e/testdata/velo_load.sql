-- What happens at the bicycle hire all day. Each function is one transaction of a client.

set search_path = velo, "Werkstatt", public;

create function any_user() returns bigint language sql as $$ select id from velo."user" where id >= 1 + floor(random() * (select max(id) from velo."user")) order by id limit 1 $$;
create function any_bike(bike_state) returns uuid language sql as $$ select id from velo.bike where state = $1 order by random() limit 1 $$;
create function any_station() returns int language sql as $$ select 1 + floor(random() * 12)::int $$;
create function noise(length int) returns text language sql as $$ select left(string_agg(md5(random()::text), ''), length) from generate_series(1, length / 32 + 1) $$;

create function hire() returns void language plpgsql as $$
declare
	b uuid := any_bike('free');
	u bigint := any_user();
	moment timestamp := timestamp '2024-06-01' + random() * interval '800 days';
begin
	if b is null or u is null then return; end if;
	insert into "Rental" (id, started, "user", bike, "from", track)
		values (nextval('rental_id'), moment, u, b, any_station(), case when random() < 0.3 then noise(9000) when random() < 0.5 then 'kurz' end);
	update bike set state = 'hired', station = null, last_seen = moment at time zone 'UTC' where id = b;
end $$;

create function give_back() returns void language plpgsql as $$
declare
	r record;
	s int := any_station();
begin
	for r in select * from "Rental" where ended is null order by random() limit 3 loop
		update "Rental" set ended = started + interval '37 min', "to" = s, price = 9.25 where id = r.id and started = r.started;
		update bike set state = 'free', station = s, distance = distance + 4.2 where id = r.bike and state = 'hired';
		update "user" set balance = balance - 9.25 where id = r."user";
	end loop;
end $$;

-- A rental of another day: its row moves to another partition.
create function correct_day() returns void language sql as $$
	update velo."Rental" set started = started + interval '400 days' * (1 - 2 * (id % 2)) where (id, started) in (select id, started from velo."Rental" order by random() limit 2)
$$;

create function pay() returns void language plpgsql as $$
declare
	sum amount := round((random() * 100)::numeric, 2);
	u bigint := any_user();
begin
	insert into payment values (nextval('payment_id'), (array['EUR', 'EUR', 'CHF', 'USD'])[1 + floor(random() * 4)], u, (enum_range(null::payment_kind))[1 + floor(random() * 4)], sum,
		json_build_object('b', sum, 'a', null, 'ü', array[1, 2]), clock_timestamp());
	update "user" set balance = balance + sum where id = u;
	if random() < 0.2 then
		update payment set currency = case currency when 'EUR' then 'CHF' else 'EUR' end, details = null where id = (select max(id) - 3 from payment);
	end if;
end $$;

-- Of many bookings some are of a place that is taken: each is tried in a subtransaction of its own.
create function book() returns void language plpgsql as $$
declare
	at timestamptz;
	n int := floor(random() * 200);
begin
	for i in 1..6 loop
		begin
			at := timestamptz '2024-01-01 00:00+00' + interval '1 hour' * floor(random() * 2000);
			insert into booking ("user", place, during) values (any_user(), int4range(n, n + 1 + i % 3), tstzrange(at, case when i < 6 then at + interval '5 hours' end));
			if i % 4 = 0 then
				update "user" set tags = array_append(tags, 'busy ' || i) where id = 1 + n;
				raise exception 'changed my mind';
			end if;
		exception
			when exclusion_violation then
				delete from booking where place && int4range(n, n + 1) and during && tstzrange(at, at + interval '1 hour');
			when raise_exception then null;
		end;
	end loop;
end $$;

create function repair() returns void language plpgsql as $$
declare
	b uuid := any_bike((array['free', 'in repair'])[1 + floor(random() * 2)]::bike_state);
	r bigint;
begin
	if b is null then return; end if;
	select id into r from repair where bike = b and state <> 'done';
	if r is null then
		insert into repair (bike) values (b) returning id into r;
		update bike set state = 'in repair' where id = b;
	end if;
	begin
		insert into repair_part select r, 1 + floor(random() * 40), 1 + floor(random() * 5) from generate_series(1, 2);
		update repair set state = 'waiting for parts', states = states || 'waiting for parts'::repair_state, history = history || jsonb_build_array(random() < 0.5) where id = r;
		begin
			update part set stock = stock - 100000000 where id = 1;
		exception when check_violation then
			update repair set cost = coalesce(cost, 0) + 12.5 where id = r;
		end;
	exception when unique_violation then
		update repair set state = 'done', states = states || '{done,null}'::repair_state[], took = interval '1 day 2 hours' * random() where id = r;
		update bike set state = 'free' where id = b;
		delete from repair_part where repair = r;
	end;
end $$;

create function write_invoice() returns void language plpgsql as $$
declare
	name text := 'R-' || nextval('payment_id');
begin
	insert into invoice_line select name, i, 'Posten ' || i, i / 3.0, i * 1.11 from generate_series(1, 1 + floor(random() * 5)::int) i; -- the invoice comes after, the key is deferred
	insert into invoice ("no", "user", paid) values (name, any_user(), case when random() < 0.5 then random() < 0.5 end);
	update invoice_line set quantity = quantity + 1 where invoice = name and line = 1;
	if random() < 0.3 then
		update invoice set "no" = 'Storno ' || "no" where "no" = (select "no" from invoice where "no" not like 'Storno%' order by random() limit 1); -- a key that cascades
	elsif random() < 0.2 then
		delete from invoice where "no" in (select "no" from invoice order by random() limit 2);
	end if;
end $$;

create function write_letters() returns void language plpgsql as $$
begin
	insert into letter ("user", body, "when") select any_user(), case when i = 1 then noise(12000) else 'Grüezi ' || i end, time '08:00' + interval '1 second' * random() * 40000 from generate_series(1, 2) i;
	update letter set read_times = read_times + 1 where id in (select id from letter order by random() limit 5);
	delete from letter where id in (select id from letter where read_times > 3 limit 2);
end $$;

-- Somebody leaves, and everything of theirs with them; somebody else takes the place.
create function leave_and_join() returns void language plpgsql as $$
declare
	u bigint := any_user();
begin
	update bike set state = 'free', station = any_station() where id in (select bike from "Rental" where "user" = u and ended is null);
	if u > 20 then delete from "user" where id = u; end if;
	insert into "user" (email, "Straße", tags) values (noise(12) || '@velo.example', 'Weg "' || noise(3) || '"', array[noise(2)]);
	update "user" set email = noise(9) || '@neu.example' where id = (select max(id) from "user"); -- its identity
end $$;

create function renew_bike() returns void language plpgsql as $$
declare
	b uuid := any_bike('free');
begin
	delete from bike where id = b; -- its rentals and repairs go with it
	insert into bike values (gen_random_uuid(), 'M' || 1 + floor(random() * 8), 'free', any_station(), 0, '{}', '2024-05-05', 'infinity');
end $$;

create function take_stock() returns void language plpgsql as $$
declare
	least int;
begin
	delete from movement where ctid in (select ctid from movement order by random() limit 4);
	update movement set note = coalesce(note, '') || '.' where ctid in (select ctid from movement where length(coalesce(note, '')) < 20 limit 5);
	select min(stock) into least from part;
	if least < 900000 then update part set stock = 1000000; end if;
	update "Größe" set "order" = -"order", "naïve text" = nullif("naïve text", '') where "Zoll """ = 28;
end $$;

-- The night job: old things go, all at once.
create function night() returns void language plpgsql as $$
begin
	truncate station_day;
	delete from audit where id < (select max(id) - 500 from audit);
	delete from "Rental" where ended is not null and random() < 0.3;
	delete from booking where random() < 0.2;
	update tariff set per_minute = case when per_minute < 100 then per_minute * 1.01 else 0.25 end where kind = 'day';
	update model set price = price + 0.05, spec = spec || jsonb_build_object('n', floor(random() * 100)), name = reverse(name);
	begin
		delete from letter;
		raise exception 'no, keep them';
	exception when raise_exception then null;
	end;
end $$;
