package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Handler serves the shop's front end: customers put orders into the queue, and services query the details of an order.
//
//	POST /orders        puts an order into the queue; a repeat changes nothing
//	GET  /orders/{id}   an accepted order
func (d *Database) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ID == "" {
			say(w, http.StatusBadRequest, "an order with an id is needed")
			return
		}
		if err := d.Enqueue(r.Context(), o); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		o, err := d.Order(r.Context(), r.PathValue("id"))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			say(w, http.StatusNotFound, "there is no such order")
		case err != nil:
			say(w, http.StatusServiceUnavailable, err.Error())
		default:
			_ = json.NewEncoder(w).Encode(o)
		}
	})
	return mux
}

// Enqueue puts an order into the queue, once.
func (d *Database) Enqueue(ctx context.Context, o Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = d.db.ExecContext(ctx, `insert into queue (id, body)
		select ?1, ?2 where not exists (select 1 from orders where id = ?1)
		on conflict (id) do nothing`, o.ID, body)
	return err
}

// Order returns an accepted order.
func (d *Database) Order(ctx context.Context, id string) (o Order, err error) {
	var body []byte
	if err = d.db.QueryRowContext(ctx, `select body from orders where id = ?`, id).Scan(&body); err == nil {
		err = json.Unmarshal(body, &o)
	}
	return o, err
}

// Taken returns the ids of accepted orders.
func (d *Database) Taken(ctx context.Context) ([]string, error) {
	return d.list(ctx, `select id from orders order by id`)
}

// Ended returns the ids of the orders that have ended in a state: done or undone.
func (d *Database) Ended(ctx context.Context, state string) ([]string, error) {
	return d.list(ctx, `select key from outbox where ended = ? order by key`, state)
}

func (d *Database) list(ctx context.Context, query string, args ...any) (ids []string, err error) {
	rows, err := d.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// orderClient is the OrderSource of the services: it queries the front end.
type orderClient struct{ url string }

func (c orderClient) Order(ctx context.Context, id string) (o Order, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/orders/"+id, nil)
	if err != nil {
		return o, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return o, fmt.Errorf("order %s: %s", id, resp.Status)
	}
	return o, json.NewDecoder(resp.Body).Decode(&o)
}
