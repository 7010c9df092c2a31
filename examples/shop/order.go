package main

import (
	"fmt"
	"math/rand/v2"
)

// Order is an order of a customer. It stays in the shop's own database: the job contains only its ID, and each service
// queries the details when it needs them.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int    `json:"amount"` // in cents
	Address  string `json:"address"`
}

var (
	customers = []string{"Ada", "Bela", "Carmen", "Dmitri", "Edda", "Femi", "Grete", "Hugo"}
	teas      = []string{"assam", "ceylon", "darjeeling", "earl-grey", "lapsang", "sencha"}
	streets   = []string{"Birch Road", "Harbour Lane", "Mill Street", "Station Square"}
)

// makeOrders generates n orders. The same seed gives the same orders.
func makeOrders(n int, seed uint64) []Order {
	r := rand.New(rand.NewPCG(seed, 1))
	orders := make([]Order, n)
	for i := range orders {
		quantity := 1 + r.IntN(5)
		orders[i] = Order{
			ID:       fmt.Sprintf("order-%04d", i+1),
			Customer: customers[r.IntN(len(customers))],
			SKU:      teas[r.IntN(len(teas))],
			Quantity: quantity,
			Amount:   quantity * (350 + 50*r.IntN(10)),
			Address:  fmt.Sprintf("%d %s", 1+r.IntN(99), streets[r.IntN(len(streets))]),
		}
	}
	return orders
}
